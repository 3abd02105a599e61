# Runs a command the way ModelArts' custom images do: in user-job-dir, with the code there and on Python's path.
#
#   run_train.sh COMMAND [ARGUMENT]...
#   run_train.sh s3://BUCKET/CODE/ CODE/BOOT.py LOG_FILE [ARGUMENT]...      (the form of Ascend images)

DLS_USER_HOME_DIR=$(cd "$(dirname "$0")" && pwd -P)
cd "$DLS_USER_HOME_DIR" || exit 1
DLS_USER_JOB_DIR=$DLS_USER_HOME_DIR/user-job-dir
export DLS_USER_HOME_DIR DLS_USER_JOB_DIR
export PYTHONPATH=$DLS_USER_JOB_DIR${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1

source "$DLS_USER_HOME_DIR/utils.sh"
dls_fix_dns
unset_job_env_except_self "${DLS_JOB_ID:-}"
decrypt_dls_aes_env

app_url=${DLS_APP_URL:-}
log_url=
if [[ ${1:-} =~ ^(s3|obs):// ]]; then
    app_url=$1
    boot_file=$2
    log_url=$3
    shift 3
    set -- "$(dls_get_executor "$boot_file")" "$DLS_USER_JOB_DIR/$boot_file" "$@"
    # One process per device, by the rank table.
    if [[ -n ${RANK_TABLE_FILE:-} ]]; then
        set -- davincirun "$@"
    fi
fi

echo "user: $(id)"
echo "pwd: $PWD"
echo "app_url: $app_url"
echo "log_url: ${log_url:-this log}"
echo "command:" "$@"

mkdir -p "$DLS_USER_JOB_DIR" && cd "$DLS_USER_JOB_DIR" || exit 1
if [[ -n $app_url ]] && ! dls_get_app "$app_url"; then
    echo "App download error"
    exit 127
fi
# The platform writes every line of a process down by itself: nothing stands between the command and the log, unless
# the caller wants a file of their own.
if [[ -z $log_url ]]; then
    exec "$@"
fi
dls_create_log "$log_url"
"$@" 2>&1 | tee -a "$log_url"
exit "${PIPESTATUS[0]}"

# The functions that start scripts of ModelArts' custom images expect from `source utils.sh`.

# Name servers are the platform's business; a fixer that an image brings along is called as it always was.
dls_fix_dns() {
    if [[ -n ${DLS_USE_DNS_TCP:-} && $DLS_USE_DNS_TCP != 0 ]] && command -v dls-dns-fixer >/dev/null; then
        dls-dns-fixer
    fi
}

# Forgets the variables of other jobs of a shared cluster: all but those of the given job.
unset_job_env_except_self() {
    local own name
    own=${1^^}
    own=${own//-/_}
    while IFS='=' read -r -d '' name _; do
        if [[ $name =~ ^[A-Z0-9]{6}_[0-9]{8}_ || $name == KUBERNETES_* ]]; then
            [[ -n $own && $name == "$own"* ]] || unset "$name"
        fi
    done < <(env -0)
}

# Decrypts DLS_AES__NAME into NAME, where an image has the program for it.
decrypt_dls_aes_env() {
    local name
    if [[ -n ${DLS_DECRYPTOR_KEY_FILE:-} ]]; then
        for name in ${!DLS_AES__@}; do
            export "${name#DLS_AES__}=$(dls-decryptor "$DLS_DECRYPTOR_KEY_FILE" "${!name}")"
        done
    elif [[ -n ${DLS_KEY_ENDPOINT:-} && -n ${DLS_KEY_JOB_ID:-} ]]; then
        for name in ${!DLS_AES__@}; do
            export "${name#DLS_AES__}=$(dls-key-client "$DLS_KEY_ENDPOINT" "$DLS_KEY_JOB_ID" "${!name}")"
        done
    else
        echo "no related env found"
    fi
}

# Makes an empty log file, and the folders above it.
dls_create_log() {
    if command -v modelarts-pipe >/dev/null; then
        modelarts-pipe "$1" create
    else
        mkdir -p "$(dirname "$1")" && touch "$1"
    fi
}

# Writes what comes in to a log file, from its beginning or, with `append`, at its end. Without a file it is dropped.
dls_logger() {
    if [[ -z ${1:-} ]]; then
        cat >/dev/null
    elif [[ ${2:-} == append ]]; then
        cat >>"$1"
    else
        cat >"$1"
    fi
}

# Brings the code folder to ./<its name>/. The platform has brought the job's own already, as it was at submit.
dls_get_app() {
    local url=${1%/} name
    name=${url##*/}
    if [[ $1 == "${DLS_APP_URL:-}" && -d ./$name && $1 =~ ^(s3|obs):// ]] || [[ -d $1 && $1 -ef ./$name ]]; then
        echo "the code is at $PWD/$name"
    elif [[ -z ${DLS_USE_DOWNLOADER:-} || $DLS_USE_DOWNLOADER == 0 ]]; then
        cp -av "$1" ./
    else
        python "${DLS_USER_HOME_DIR:-/home/work}/modelarts-downloader.py" -r -s "$1" -d ./
    fi
}

# Writes a log file to a folder of the object store.
dls_upload_log() {
    python "${DLS_USER_HOME_DIR:-/home/work}/modelarts-downloader.py" \
        -s "$1" -d "${2%/}/dls-log-${DLS_DLKS_JOB_ID:-unknown-id}/"
}

# The program that runs a file, by the file's name.
dls_get_executor() {
    case $1 in
        *.py*) echo python ;;
        *.sh) echo bash ;;
    esac
}

# Writes every entry of a folder to a folder of the object store.
dls_upload_train() {
    local entry
    for entry in "$1"/*; do
        [[ -e $entry ]] || continue
        if [[ -d $entry ]]; then
            python "${DLS_USER_HOME_DIR:-/home/work}/modelarts-downloader.py" -r -s "$entry" -d "${2%/}/" || return
        else
            python "${DLS_USER_HOME_DIR:-/home/work}/modelarts-downloader.py" -s "$entry" -d "${2%/}/" || return
        fi
    done
}

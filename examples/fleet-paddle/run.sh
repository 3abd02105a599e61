# Starts the training on this node with Paddle's launcher.
#
# The guide's variables and options are used as they are: DLS_TASK_NUMBER and BATCH_* come from the platform, and the
# launcher's early options (--cluster_node_ips, --node_ip, --started_port, --selected_gpus), which Paddle 3 has under
# other names, are rewritten by the platform with a line in the log. Changed against the guide:
#   1. One device per node instead of eight, so that the job fits on a laptop.
#   2. The script is told where its data lies, because it learns MNIST instead of random numbers.
#   3. It is looked for beside this file, wherever the working folder is.
here=$(cd "$(dirname "$0")" && pwd)
devices=0
arguments="--data_url=$DLS_DATA_URL --train_url=$DLS_TRAIN_URL --steps=${steps:-300}"

if [[ ${DLS_TASK_NUMBER} == 1 ]]; then
    python -m paddle.distributed.launch --selected_gpus=$devices --log_dir mylog \
        "$here/train_with_fleet.py" $arguments
else
    hosts=""
    for ((i = 0; i < DLS_TASK_NUMBER; i++)); do
        name=BATCH_CUSTOM${i}_HOSTS
        hosts="${hosts:+$hosts,}${!name}"
    done
    python -m paddle.distributed.launch \
        --cluster_node_ips=$hosts \
        --node_ip=$BATCH_CURRENT_HOST \
        --started_port=$BATCH_CURRENT_PORT \
        --selected_gpus=$devices \
        --log_dir=mylog \
        "$here/train_with_fleet.py" $arguments
fi

#!/bin/bash
# Starts one training process per NPU of this worker. Usage: run_8p.sh RANK_TABLE DATA
#
# What differs from the script that the platform's guide prints:
#  * RANK_ID counts from the worker's first NPU. With RANK_ID=$i both workers would be ranks 0 to 7.
#  * RANK_SIZE and DEVICE_NUM come from the platform, so that the script fits any number of workers.
#  * Each worker has its own folder, since the code folder may lie on a disk that all workers share.
#  * The exit code is that of the first process that failed; `wait` alone would always report success.
if [ $# != 2 ]; then
    echo "Usage: run_8p.sh RANK_TABLE DATA"
    exit 1
fi
rank_table=$(realpath -m "$1")
data=$(realpath -m "$2")
if [ ! -f "$rank_table" ]; then
    echo "error: $rank_table is not a file"
    exit 1
fi
if [ ! -d "$data" ]; then
    echo "error: $data is not a directory"
    exit 1
fi

worker=${DLWS_ROLE_IDX:-0}
devices=${DLWS_NUM_GPU_PER_WORKER:-8}
export DEVICE_NUM=$devices
export RANK_SIZE=$(( devices * ${DLWS_NUM_WORKER:-1} ))
export MINDSPORE_HCCL_CONFIG_PATH=$rank_table RANK_TABLE_FILE=$rank_table

pids=()
trap 'kill "${pids[@]}" 2>/dev/null' TERM INT
for (( i = 0; i < devices; i++ )); do
    export DEVICE_ID=$i
    export RANK_ID=$(( worker * devices + i ))
    folder=train_parallel_$worker/$i
    rm -rf "$folder"
    mkdir -p "$folder"
    cp ./*.py "$folder"
    echo "start training for rank $RANK_ID, device $DEVICE_ID"
    (cd "$folder" && env > env.log && exec python train.py --dataset_path="$data") &
    pids+=($!)
done
code=0
for pid in "${pids[@]}"; do
    wait "$pid" || { found=$?; [ $code = 0 ] && code=$found; }
done
exit $code

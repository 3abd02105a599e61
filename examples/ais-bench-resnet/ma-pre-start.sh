#!/bin/bash
set -x
LOCAL_DIR=$(cd "$(dirname "$0")";pwd)
echo $LOCAL_DIR

# Wheels that lie in run/ beside train.py are installed first; this example has none.
TRAIN_PY_PATH=$(readlink -f `find ./ -name train.py`)
BASE_PATH=`dirname $TRAIN_PY_PATH`
for wheel in $BASE_PATH/run/*.whl; do
    [ -e "$wheel" ] && pip install "$wheel"
done

export GLOG_v=3
export ASCEND_GLOBAL_LOG_LEVEL=3
export ASCEND_GLOBAL_EVENT_ENABLE=0
export ASCEND_SLOG_PRINT_TO_STDOUT=0
set +x

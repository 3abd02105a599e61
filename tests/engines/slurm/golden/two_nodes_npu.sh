#!/bin/sh
#SBATCH --job-name=trainshed-lab1-7c9e6679-7425-40de-944b-e07fc1f90ae7-3
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=23
#SBATCH --gres=npu:8
#SBATCH --time=151
#SBATCH --partition=train
#SBATCH --account=lab
#SBATCH --qos=long
#SBATCH --exclude=n3,n7
#SBATCH --no-requeue
#SBATCH --export=ALL
#SBATCH --chdir=/
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
#SBATCH --constraint=roce
#SBATCH --exclusive

# Attempt 3 of the job 7c9e6679-7425-40de-944b-e07fc1f90ae7: one runner on each machine.
TRAINSHED_PYTHON=/opt/python3
export TRAINSHED_PYTHON
start=$(cat <<'END_OF_TRAINSHED_START'
echo "node $SLURM_NODEID" 'as it is'
exec "$TRAINSHED_PYTHON" -c 'print("$(id)")'
END_OF_TRAINSHED_START
)
exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=23 \
    --kill-on-bad-exit=1 --wait=0 --input=none /bin/sh -c "$start"

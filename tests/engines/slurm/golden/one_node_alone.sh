#!/bin/sh
#SBATCH --job-name=trainshed-lab1-7c9e6679-7425-40de-944b-e07fc1f90ae7-3
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8192M
#SBATCH --no-requeue
#SBATCH --export=ALL
#SBATCH --chdir=/
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null

# Attempt 3 of the job 7c9e6679-7425-40de-944b-e07fc1f90ae7: one runner on each machine.
TRAINSHED_PYTHON=python3
export TRAINSHED_PYTHON
echo "node $SLURM_NODEID" 'as it is'
exec "$TRAINSHED_PYTHON" -c 'print("$(id)")'

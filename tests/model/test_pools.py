"""Pools: what a settings file may say, and which one a job gets."""

from __future__ import annotations

import tomllib

import pytest

from trainshed.model.errors import InvalidInput, NotAllowed, NotFound
from trainshed.model.pools import Pool, account_of, default_pool, find_pool, list_pools, pool_of, read_pools
from trainshed.model.settings import read_settings

TEXT = """
[pools.gpu]
engine = "slurm"
partition = "a100"
account = "lab"
qos = "long"
options = ["--constraint=nvlink", "--exclusive"]
python = "/opt/python/bin/python3.12"

[pools.npu]
engine = "slurm"
run_as = "user"
accounts = { alice = "al", bob = "bob" }
gres = { ascend = "davinci" }
"""


def test_a_settings_file_names_pools() -> None:
    settings = read_settings({"pools": tomllib.loads(TEXT)["pools"]}, {}, {})
    gpu, npu = settings.pools
    assert (gpu.partition, gpu.account, gpu.qos, gpu.python) == (
        "a100",
        "lab",
        "long",
        "/opt/python/bin/python3.12",
    )
    assert gpu.options == ("--constraint=nvlink", "--exclusive")
    assert (npu.engine, npu.partition, npu.gres) == ("slurm", "npu", {"nvidia": "gpu", "ascend": "davinci"})
    assert [pool.name for pool in settings.all_pools] == ["local", "gpu", "npu"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"Big": {}}, "not a pool's name"),
        ({"a": 3}, "is a table"),
        ({"a": {"partion": "x"}}, "'partition'"),
        ({"a": {"partition": "x"}}, "which engine"),
        ({"local": {"engine": "slurm"}}, "that name is taken"),
        ({"slurm": {"engine": "local"}}, "that name is taken"),
        ({"a": {"engine": "pbs"}}, "no engine"),
        ({"a": {"engine": "slurm", "run_as": "root"}}, "run_as"),
        ({"a": {"engine": "slurm", "run_as": "user", "accounts": {"x": "root"}}}, "as root"),
        ({"a": {"engine": "slurm", "accounts": {"x": "$(id)"}}}, "not a usable name"),
        ({"a": {"engine": "slurm", "partition": "x\n#SBATCH --uid=0"}}, "partition is a name"),
        ({"a": {"engine": "slurm", "options": "--x"}}, "list"),
        ({"a": {"engine": "slurm", "options": ["-x"]}}, "not an option"),
        ({"a": {"engine": "slurm", "options": ["--mail-type=END\n#SBATCH --uid=0"]}}, "not an option"),
        ({"a": {"engine": "slurm", "options": ["--job-name=mine"]}}, "sets --job-name itself"),
        ({"a": {"engine": "slurm", "options": ["--requeue"]}}, "sets --requeue itself"),
        ({"a": {"engine": "slurm", "python": "python3; id"}}, "interpreter"),
        ({"a": {"engine": "slurm", "gres": {"tpu": "tpu"}}}, "nvidia and ascend"),
        ({"a": {"engine": "slurm", "node_folder": "scratch"}}, "node_folder is the path"),
        ({"a": {"engine": "slurm", "addresses": "10.0.0.1/8"}}, "addresses is a network"),
        ({"a": {"engine": "slurm", "shared_folder": "/x; id"}}, "shared_folder is the path"),
        ({"a": {"engine": "local"}, "b": {"engine": "local"}}, "all this machine"),
        ([], "is a table"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("$", r"\$")):
        read_pools(table)


def test_the_machine_itself_is_a_pool_unless_the_engine_is_another() -> None:
    assert [pool.name for pool in list_pools(())] == ["local"]
    assert [(pool.name, pool.engine) for pool in list_pools((), "slurm")] == [("slurm", "slurm")]
    mine = (Pool("here", "local"), Pool("gpu", "slurm"))
    assert list_pools(mine) == mine
    assert list_pools(mine, "slurm") == mine
    assert [pool.name for pool in list_pools((Pool("gpu", "slurm"),), "slurm")] == ["gpu"]


def test_a_job_without_a_pool_runs_here_if_that_is_possible() -> None:
    gpu, local = Pool("gpu", "slurm"), Pool("local")
    assert default_pool((gpu, local)) is local
    assert default_pool((gpu,)) is gpu
    assert find_pool("", (gpu, local)) is local
    assert find_pool("gpu", (gpu, local)) is gpu
    with pytest.raises(NotFound, match="Did you mean 'gpu'"):
        find_pool("gqu", (gpu, local))
    assert pool_of({"pool": "gone"}, (gpu, local)) is None
    assert pool_of({}, (gpu, local)) is local


def test_users_run_as_themselves_unless_the_administrator_chose_one_account() -> None:
    pool = Pool("gpu", "slurm", run_as="user", accounts={"alice": "al", "mallory": ""})
    assert account_of(pool, "alice") == "al"
    assert account_of(pool, "bob") == "bob"
    assert account_of(Pool("gpu", "slurm"), "alice") == ""
    for name in ("mallory", "root", "-u", "a b", ""):
        with pytest.raises(NotAllowed, match=f"'{name}' has no Unix account"):
            account_of(pool, name)
    assert read_pools({"gpu": {"engine": "slurm"}})[0].run_as == "user"
    assert list_pools((), "slurm")[0].run_as == "user"


def test_folders_of_the_machines_are_paths_without_a_slash_at_the_end() -> None:
    table = {"a": {"engine": "slurm", "node_folder": "/scratch/ts/", "shared_folder": "/nfs/trainshed"}}
    table["a"]["addresses"] = "10.1.0.0/16"
    [pool] = read_pools(table)
    assert (pool.node_folder, pool.shared_folder) == ("/scratch/ts", "/nfs/trainshed")
    assert pool.addresses == "10.1.0.0/16"

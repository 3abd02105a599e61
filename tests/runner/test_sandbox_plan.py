"""What the sandbox of a node gets."""

from __future__ import annotations

from dataclasses import replace

from trainshed.model.launch_plan import Environment, NodeLaunch
from trainshed.runner.sandbox_plan import renumber_devices

GIVEN = {"CUDA_VISIBLE_DEVICES": "2,5", "RANK": "0"}
LAUNCH = NodeLaunch(
    job_id="1",
    job_name="job",
    workspace_id="w",
    attempt=1,
    node_index=0,
    node_count=1,
    world_size=2,
    code_bucket="data",
    code_prefix="code/",
    code_path="/job/code",
    processes=(),
    environment=Environment("python", "3.11"),
    device_kind="nvidia",
    devices=(2, 5),
)


def test_gpus_are_counted_from_0_where_only_the_jobs_own_can_be_seen() -> None:
    assert renumber_devices(LAUNCH, GIVEN, is_walled=True) == {"CUDA_VISIBLE_DEVICES": "0,1", "RANK": "0"}
    # Without a wall all of the machine's are seen.
    assert renumber_devices(LAUNCH, GIVEN, is_walled=False) == GIVEN


def test_what_the_user_chose_and_devices_that_are_pretended_keep_their_numbers() -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": "1"}
    assert renumber_devices(LAUNCH, chosen, is_walled=True) == chosen
    assert renumber_devices(replace(LAUNCH, rehearsal=True), GIVEN, is_walled=True) == GIVEN
    assert renumber_devices(replace(LAUNCH, device_kind="ascend"), GIVEN, is_walled=True) == GIVEN

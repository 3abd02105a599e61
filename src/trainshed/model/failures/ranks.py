"""Failures of ranks together: peers that never came or went away, rank tables, launchers, ssh."""

from __future__ import annotations

from trainshed.model.failures.known_failure import known

__all__ = ["RANK_FAILURES"]

_OTHERS = "Look at the logs of the other ranks: the one that failed or hangs is the cause."

RANK_FAILURES = (
    known(
        "rank_table",
        r"(?i)(?:rank_?table|RANK_TABLE_FILE|MINDSPORE_HCCL_CONFIG_PATH).{0,200}(?:not exist|No such file|not found|"
        r"invalid|is empty|fail|not set|doesn't exist)|\bEI0004\b|(?:open|parse|read).{0,40}rank ?table.{0,40}fail",
        "the rank table is missing or wrong",
        "Leave RANK_TABLE_FILE as the platform sets it; `trainshed ranktable` prints and checks a table.",
    ),
    known(
        "rank_variables",
        r"environment variable (\w+) expected, but not set|KeyError: '((?:LOCAL_|WORLD_|RANK_)?(?:RANK|SIZE|ID|TABLE_FILE)"
        r"|MASTER_ADDR|MASTER_PORT|DEVICE_ID|DEVICE_NUM)'|without using 'mpirun'",
        "the script expects variables of a distributed launch that are not set",
        "Start the script as `boot`, which sets them for every rank, or by torchrun, msrun or mpirun in the command.",
    ),
    known(
        "no_process_group",
        r"Default process group has not been initialized",
        "the script uses torch.distributed before init_process_group",
        "Call torch.distributed.init_process_group first.",
    ),
    known(
        "not_enough_slots",
        r"not enough slots available",
        "mpirun was asked for more processes than the host file has slots",
        "Let -np equal the ranks of the job, use the host file of the job, or add --oversubscribe.",
    ),
    known(
        "mpi_missing_program",
        r"mpirun was unable to find the specified executable|unable to launch the specified application|"
        r"prterun was unable to (?:launch|find|start)",
        "mpirun did not find the program to start",
        "Check its spelling; give its whole path, or `-x PATH`.",
    ),
    known(
        "mpi_as_root",
        r"mpirun has detected an attempt to run as root",
        "mpirun refuses to run as root",
        "Add --allow-run-as-root to mpirun.",
    ),
    known(
        "ssh_host_key",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "ssh does not know the key of another node",
        "Use the ssh settings of the job (do not overwrite ~/.ssh), or StrictHostKeyChecking=no.",
    ),
    known(
        "ssh_denied",
        r"Permission denied \((?:publickey|password)",
        "another node refused the ssh key",
        "Use the key of the job (do not overwrite ~/.ssh).",
    ),
    known(
        "ssh_refused",
        r"ssh: connect to host (\S{1,100}) port (\d{1,5}): (?:Connection refused|Connection timed out|No route to host)|"
        r"ssh: Could not resolve hostname (\S{1,100})",
        "ssh to another node of the job failed",
        "Use the names and the port of the job's host file and ~/.ssh/config; both nodes must run at that moment.",
    ),
    known(
        "peer_missing",
        r"(\d+)/(\d+) clients joined",
        "only {0} of {1} ranks came to the meeting point in time",
        "See which rank has no log or failed early; all ranks need the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",
        follows=True,
        waiting=True,
    ),
    known(
        "peer_missing",
        r"client socket has (?:timed out after \S+ while trying|failed) to connect to (?:any network address of )?"
        r"\(([^)]{1,100})\)",
        "rank 0 was not at the meeting point ({0}) in time",
        "See whether rank 0 failed or started late; MASTER_ADDR and MASTER_PORT must be those of the platform.",
        follows=True,
        waiting=True,
    ),
    known(
        "peer_missing",
        r"(?:gloo|c10d|TCPStore|tcp_store|[Rr]endezvous|MASTER_ADDR|connectFullMesh).{0,300}(?:Connection refused|ECONNREFUSED)|"
        r"RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError|Timed out waiting for .{0,60}rendezvous",
        "the other nodes did not come to torchrun's meeting point in time",
        "All nodes must run torchrun with the same --nnodes and --rdzv-endpoint. " + _OTHERS,
        follows=True,
        waiting=True,
    ),
    known(
        "peer_missing",
        r"Failed to initialize distributed job cluster|Failed to register and try to reconnect to the meta server|Topology build timed out|"
        r"Failed to (?:init|initialize|build) the cluster|[Bb]uild(?:ing)? the (?:dynamic )?cluster.{0,40}(?:fail|time)|"
        r"the node: .{0,80}(?:timed out|is timed ?out)|Connect to the (?:scheduler|meta server).{0,40}fail|"
        r"Maybe the scheduler|total nodes timed out|Failed to connect to the meta server|"
        r"alive.{0,30}worker.{0,60}less than|There are fewer registered nodes",
        "the processes of the MindSpore cluster did not find each other in time",
        "The scheduler and all workers must run with the same MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM. "
        + _OTHERS,
        follows=True,
        waiting=True,
        overcome=r"Cluster is successfully initialized",
    ),
    known(
        "peer_missing",
        r"Getting socket times out|\bEI0006\b|\bEJ000[13]\b|HCCL_CONNECT_TIMEOUT|Communication_Error_Get_Socket|"
        r"(?:wait|get).{0,30}socket.{0,30}tim(?:ed?|es) ?out",
        "a rank waited for another one that did not connect (HCCL)",
        _OTHERS + " If all are well, raise HCCL_CONNECT_TIMEOUT.",
        follows=True,
        waiting=True,
    ),
    known(
        "peer_missing",
        r"(?:tcp_store|TCPStore|tcp_utils).{0,200}(?:[Tt]imed? ?out|timeout|Unavailable|connect)|"
        r"Retry to connect to .{1,60} while the server is not yet listening|stop_check_timeout|FLAGS_stop_check_timeout|\(Unavailable\).{0,200}connect",
        "the other ranks did not come to the meeting point in time",
        "All nodes need the same --master (PADDLE_MASTER, MASTER_ADDR) and number of nodes. " + _OTHERS,
        follows=True,
        waiting=True,
        overcome=r"Successfully connected to",
    ),
    known(
        "peer_silent",
        r"Watchdog caught collective operation timeout|WorkNCCL\(.{0,300}timing out|Timed out waiting \d+ms for (?:recv|send)|"
        r"\bEI0002\b|notify wait.{0,40}time ?out|collective .{0,60}timed out|[Bb]arrier.{0,40}timed? ?out|"
        r"Socket Timeout|wait timeout after \d+ms",
        "a rank waited for another one that did not take part in a common operation",
        _OTHERS + " All ranks must call the same operations; raise the timeout if one is only slow.",
        follows=True,
    ),
    known(
        "peer_gone",
        r"Connection (?:closed|reset) by (?:peer|remote)|[Bb]roken [Pp]ipe|ncclRemoteError|"
        r"remote process exited or there was a network error|NCCL communicator was aborted|ncclSystemError|"
        r"recvValue failed|failed to recv, got 0 bytes|\bEI0009\b|lost connection|heartbeat.{0,40}(?:lost|timed? ?out)|"
        r"Connection was likely closed",
        "another rank went away",
        _OTHERS,
        follows=True,
    ),
    known(
        "launcher",
        r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|ChildFailedError:|"
        r"spawn\.Process(?:Exited|Raised)Exception",
        "a process that the script or torchrun started failed",
        "See the traceback of that process in the log.",
        follows=True,
    ),
    known(
        "launcher",
        r"(?:mpirun|prterun|mpiexec|PRTE).{0,120}(?:exited with non-zero|exited on signal|non-zero exit|noticed that process)|"
        r"Process name: \[.{1,60}\]|MPI_ABORT was invoked|Primary job  ?terminated normally",
        "a process that mpirun started failed",
        "See what that process wrote into the log.",
        follows=True,
    ),
    known(
        "launcher",
        r"Container failed|Exit code (?!0$)-?\d+$|(?:worker|Worker|Scheduler) process.{0,80}(?:exit|fail)|"
        r"Distributed job exited with exception|ABORT!!! Out of all|Process \d+ terminated with (?:exit code|signal)",
        "a process that the launcher started failed",
        "See the log file of that process (workerlog.N, worker_N.log) among the logs of the job.",
        follows=True,
    ),
    known(
        "interrupted",
        r"^KeyboardInterrupt|SignalException: Process \d+ got signal: \d+|Received signal 15|caught signal 15|"
        r"Received Signals\.SIGTERM|Terminated$|closing signal SIGTERM",
        "it was interrupted",
        _OTHERS,
        follows=True,
    ),
)

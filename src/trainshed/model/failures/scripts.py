"""Failures of the script itself: arguments, paths, the shell, the network, data that cannot be read."""

from __future__ import annotations

from trainshed.model.failures.known_failure import known

__all__ = ["SCRIPT_FAILURES"]

SCRIPT_FAILURES = (
    known(
        "line_endings",
        r"\\r'|\^M: bad interpreter|syntax error near unexpected token `\$",
        "the shell script has the line endings of Windows",
        "Convert the script to Unix line endings (`sed -i 's/\\r$//' FILE`, or `git config core.autocrlf input`).",
    ),
    known(
        "unknown_argument",
        r"error: unrecognized arguments: (.{1,200})",
        "the script does not know the argument {0}",
        "The script does not know {0}: remove it from the job's parameters, inputs or outputs, or let the "
        "script use parse_known_args().",
    ),
    known(
        "unknown_argument",
        r"^(?:Error|Usage error)?:? ?[Nn]o such option:? (\S{1,100})",
        "the script does not know the option {0}",
        "Remove {0} from the job's parameters, inputs or outputs, or add it to the script.",
    ),
    known(
        "missing_argument",
        r"error: the following arguments are required: (.{1,200})",
        "the script was not given {0}",
        "Give {0} as parameter, input or output of the job.",
    ),
    known(
        "wrong_argument",
        r"error: argument (\S{1,100}): (?:invalid|expected) (.{1,200})",
        "the script does not accept the value of {0}: {1}",
        "Correct the job's parameter {0}.",
    ),
    known(
        "missing_boot_file",
        r"can't open file '([^']{1,300})': \[Errno 2\]",
        "the file to start, {0}, is not there",
        "Check `boot` or the command: its path is counted from the code folder, and capital letters matter.",
    ),
    known(
        "missing_boot_file",
        r"^(?:/bin/)?(?:ba)?sh: (?:\d+: )?(\S{1,300}\.sh): No such file or directory",
        "the script {0} is not there",
        "Check `boot` or the command: its path is counted from the code folder, and capital letters matter.",
    ),
    known(
        "command_not_found",
        r"(?:line \d+|sh: \d+|sh): (\S{1,200}): (?:command )?not found",
        "the command '{0}' is not in the environment",
        "Check the spelling of '{0}', choose an engine that has it, or add its package to requirements.txt.",
    ),
    known(
        "not_executable",
        r"(?:line \d+|sh: \d+|sh): (\S{1,200}): Permission denied",
        "'{0}' is not executable",
        "Call it by its interpreter (`bash {0}`), or `chmod +x {0}` before the submit.",
    ),
    known(
        "missing_path",
        r"line \d+: (?:cd: )?(/?\S{1,300}): No such file or directory",
        "the path {0} is not there",
        "Check the path: code lies in the code folder, data below the inputs' paths.",
    ),
    known(
        "disk_full",
        r"No space left on device|Errno 28\]|Disk quota exceeded|errno[=: ]+28\b",
        "the disk was full",
        "The node's disk is full: write less, or ask the administrator for room.",
    ),
    known(
        "disk_full",
        r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos",
        "a checkpoint could not be written, as a rule because the disk was full",
        "Write fewer or smaller checkpoints, or ask the administrator for room on the node.",
    ),
    known(
        "read_only",
        r"(?:Read-only file system)(?:: ['\"]?([^'\"]{0,300}))?",
        "the job wrote where nothing can be written ({0})",
        "Write below the job's outputs, /cache or /tmp.",
    ),
    known(
        "too_many_files",
        r"Too many open files",
        "the process had too many files open",
        "Close files and loaders that are no longer used, lower num_workers, or raise the limit with `ulimit -n` "
        "in the command.",
    ),
    known(
        "process_limit",
        r"can't start new thread|pthread_create failed|(?:fork|vfork): (?:retry: )?Resource temporarily unavailable|"
        r"BlockingIOError: \[Errno 11\] Resource temporarily",
        "the job reached its limit of processes and threads",
        "Start fewer workers: lower num_workers, or set OMP_NUM_THREADS=1.",
    ),
    known(
        "port_in_use",
        r"[Aa]ddress already in use|EADDRINUSE",
        "a port that the job wants is taken",
        "Two processes of the job use one port: derive the port from the rank, or take the one that the platform "
        "gives in MASTER_PORT.",
    ),
    known(
        "missing_file",
        r"(?:FileNotFoundError|NotADirectoryError|MoxFileNotExistsException): .*?'([^']{1,300})'",
        "the file or folder '{0}' is not there",
        "'{0}' is not there: check the path, the inputs and the code folder.",
    ),
    known(
        "missing_file",
        r"(?:ValueError|RuntimeError|NotFoundError): .{0,200}?(?:['\" ])((?:/[^'\" :,]{1,100}){1,20})['\"]? "
        r"(?:does not exist|is not exist|not exists|doesn't exist|is not a (?:file|directory|folder))",
        "the file or folder '{0}' is not there",
        "'{0}' is not there: check the path, the inputs and the code folder.",
    ),
    known(
        "missing_file",
        r"NotFoundError: .{0,300}?((?:/[^'\" :;,]{1,100}){2,20}); No such file or directory",
        "the file or folder '{0}' is not there",
        "'{0}' is not there: check the path, the inputs and the code folder.",
    ),
    known(
        "missing_file",
        r"The folder (\S{1,300}) does not exist or is not a directory or permission denied",
        "the folder {0} is not there",
        "'{0}' is not there: check the path, the inputs and the code folder.",
    ),
    known(
        "is_a_folder",
        r"IsADirectoryError: .*?'([^']{1,300})'",
        "'{0}' is a folder, the script expects a file",
        "Name the file inside it; an input whose URL ends with '/' is a folder.",
    ),
    known(
        "permission_denied",
        r"PermissionError: .*?'([^']{1,300})'",
        "the job may not touch '{0}'",
        "The job may not touch '{0}': write below its outputs, /cache or /tmp.",
    ),
    known(
        "store_missing_key",
        r"(?:NoSuchKey|NoSuchBucket|404 Not Found).{0,200}|The specified (?:key|bucket) does not exist",
        "an object or a bucket that the script asked for is not there",
        "Check the obs:// address (bucket, key, capital letters); `trainshed obs ls` lists what is there.",
    ),
    known(
        "store_denied",
        r"AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|status[ :=]+403|403 Forbidden",
        "the object store refused the script's access",
        "Use a bucket of the job's own workspace, and leave keys out of the script: the job has its own.",
    ),
    known(
        "no_network",
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable|"
        r"No address associated with hostname|Could not resolve host|getaddrinfo failed|No route to host",
        "the script tried to reach a host that the job has no way to",
        "The job has no way to that host: upload the data to the object store, or set `network: open`.",
    ),
    known(
        "connection_refused",
        r"Connection refused",
        "nothing answered at the address that the script connected to",
        "Check the address and whether the program that should answer there was started before.",
    ),
    known(
        "bad_data",
        r"(?:BadGzipFile|BadZipFile|tarfile\.ReadError|zlib\.error|EOFError: Compressed file ended|"
        r"UnidentifiedImageError|image file is truncated)",
        "a data file is damaged or not of the kind that the script expects",
        "Upload the file again and compare its size; a page of HTML or a Git LFS pointer in its place is a common "
        "reason.",
    ),
    known(
        "bad_data",
        r"JSONDecodeError: |yaml\.\w+\.(?:Scanner|Parser)Error|TOMLDecodeError",
        "a configuration file could not be read",
        "Check the file that the traceback names: is it empty, or not what its name says?",
    ),
    known(
        "encoding",
        r"UnicodeDecodeError: '([\w-]+)' codec can't decode",
        "a file is not text in {0}",
        "Open the file with the encoding it was written in (encoding='gbk'), or in binary mode.",
    ),
    known(
        "syntax",
        r"(?:SyntaxError|IndentationError|TabError): ",
        "the script has an error of syntax",
        "Fix the line that the log names and submit again.",
    ),
    known(
        "shell_syntax",
        r"line \d+: syntax error|unexpected end of file|unbound variable",
        "the shell script has an error",
        "Fix the line that the log names and submit again; `bash -n FILE` finds most such errors.",
    ),
    known(
        "not_a_number",
        r"(?i)(?:Error|Exception|Assertion)\b.{0,200}\b(?:nan|not finite|inf)\b(?: values)?",
        "a number became NaN or infinite",
        "As a rule the training diverged: lower the learning rate, clip gradients, or look for NaN in the inputs.",
    ),
    known(
        "deep_recursion",
        r"RecursionError: ",
        "a function called itself without end",
        "Look at the function that the traceback repeats.",
    ),
    known(
        "spawn_without_main",
        r"start a new process before the\s*$|current process has finished its bootstrapping phase",
        "the script starts processes while it is being imported",
        "Put the script's start below `if __name__ == '__main__':`.",
    ),
)

"""Failures of memory and devices, and crashes in native code."""

from __future__ import annotations

from trainshed.model.failures.known_failure import known

__all__ = ["DEVICE_FAILURES"]

_SMALLER = "Reduce the batch size, or use more devices."

DEVICE_FAILURES = (
    known(
        "device_memory",
        r"(?:CUDA|NPU|HBM|HIP|XPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUDNN_STATUS_ALLOC_FAILED|"
        r"(?:Device\(id:\d+\)|device) memory isn't enough|Memory_Allocation_Failure\(EL0004\)|\bEL0004\b|"
        r"CUBLAS_STATUS_ALLOC_FAILED|Out of memory error on GPU",
        "the device ran out of memory",
        _SMALLER,
    ),
    known(
        "shared_memory",
        r"unable to (?:open|mmap|write|allocate) .{0,60}(?:shared memory|/torch_)|insufficient shared memory|"
        r"killed by signal: Bus error|Bus error",
        "the node's shared memory (/dev/shm) is too small for the data loader's workers",
        "Lower num_workers or the batch size, or use torch.multiprocessing.set_sharing_strategy('file_system').",
    ),
    known(
        "worker_killed",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal: Killed|exited unexpectedly)|"
        r"DataLoader \d+ workers? exit(?:ed)? unexpectedly|A task in the worker process .{0,100}unexpectedly exited",
        "a worker of the data loader was killed, as a rule because memory ran out",
        "Lower num_workers or the batch size, or choose a flavor with more memory.",
    ),
    known(
        "memory",
        r"^(?:[\w.]+\.)?(?:_ArrayMemoryError|MemoryError)\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|"
        r"Cannot allocate memory",
        "the node's memory was too small for what the script asked for",
        "Choose a flavor with more memory, or reduce the batch size.",
    ),
    known(
        "device_fault",
        r"uncorrectable ECC error|CUDA error: (?:unspecified launch failure|the launch timed out)|"
        r"fallen off the bus|hardware slowdown|NPU .{0,40}(?:device is lost|heartbeat (?:lost|exception))",
        "the device itself failed",
        "Rerun the job, or give it `restarts`; tell the administrator if it comes again on this machine.",
        cause="node",
    ),
    known(
        "device_assert",
        r"CUDA error: device-side assert triggered|CUBLAS_STATUS_NOT_INITIALIZED",
        "a check on the device failed, as a rule a label or index outside its range",
        "Run with CUDA_LAUNCH_BLOCKING=1 or on CPU to see the line; check the number of classes.",
    ),
    known(
        "ascend_absent",
        r"Unsupported device target [\"']?(?:Ascend|GPU)|"
        r"(?:is not available|not supported).{0,60}device_target|not support.{0,30}device target",
        "the MindSpore that is installed has no support for the device target that the script sets",
        "Choose an engine for that device, set device_target='CPU', or run it as a rehearsal "
        "(`--rehearse`), which maps the target by itself.",
    ),
    known(
        "ascend_absent",
        r"should be 'mccl' to init 'CPU'|backend_name' should be one of",
        "init() was asked for a backend that the device target does not have",
        "Call init() without a name, or set the device target before; a rehearsal maps the name by itself.",
    ),
    known(
        "npu_absent",
        r"device type at start of device string: npu|module 'torch' has no attribute 'npu'|"
        r"Torch not compiled with NPU|libascendcl\.so|libhccl\.so|drvGetDevNum failed|dcmi.{0,20}fail",
        "there is no Ascend device, or no driver for it, in the job",
        "Choose a flavor with Ascend devices and an engine with torch_npu (import it before use), or rehearse.",
    ),
    known(
        "cuda_absent",
        r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available|"
        r"CUDA driver version is insufficient|CUDA_ERROR_NO_DEVICE|no CUDA-capable device|"
        r"requires at least one CUDA device|ProcessGroupNCCL is only supported with GPUs|"
        r"Distributed package doesn't have NCCL built in|not compiled with CUDA|libcuda\.so|libcudart\.so|"
        r"Compiled with WITH_GPU, but no GPU found|Cannot use GPU because you have installed CPU version|"
        r"deserialize object on a CUDA device but|(?:PaddlePaddle is not|you should use) .{0,40}gpu",
        "the job has no NVIDIA GPU, or a framework without support for it",
        "Choose a flavor with GPUs and an engine built for CUDA, or use the CPU "
        "(device = 'cuda' if torch.cuda.is_available() else 'cpu', backend 'gloo', map_location='cpu').",
    ),
    known(
        "wrong_kernel",
        r"no kernel image is available for execution on the device|is not compatible with the current PyTorch",
        "the framework was not built for this kind of device",
        "Choose an engine whose framework supports the device's compute capability.",
    ),
    known(
        "device_number",
        r"invalid device ordinal|Invalid device id|device_id.{0,40}(?:out of range|invalid)|Set device.{0,20}failed",
        "the script asked for a device that the job does not have",
        "Devices of a job are numbered from 0: use LOCAL_RANK as the device's number.",
    ),
    known(
        "mixed_devices",
        r"Expected all tensors to be on the same device|Input type \(.{1,60}\) and weight type \(.{1,60}\)",
        "a calculation mixes tensors of different devices or types",
        "Move model and inputs to one device (`.to(device)`) before the step.",
    ),
    known(
        "shape",
        r"shapes cannot be multiplied|Matrix size-incompatible|is incompatible with the layer|[Ii]ncompatible shapes|"
        r"size mismatch(?: for|,)|must match the size of tensor|"
        r"could not be broadcast together|matmul: Input operand \d|stack expects each tensor to be equal size|"
        r"Dimension out of range|resize storage that is not resizable|"
        r"shape '\[.{1,80}\]' is invalid|Expected input batch_size|"
        r"expected input\[.{1,60}\] to have \d+ channels|"
        r"(?:shape|dimension)s?.{0,80}(?:must be|should be|but got).{0,80}(?:equal|same)|"
        r"InvalidArgumentError: .{0,60}(?:shapes?|dimensions?)|\(InvalidArgument\).{0,120}(?:dims?|shape|Dimension|width)|"
        r"For '[A-Za-z]+'.{0,160}(?:shape|dimension|x1_col|columns? of)",
        "the shapes of two tensors do not fit",
        "Print the shapes before the line that the traceback names; image size, channels or classes differ from "
        "what the model expects.",
    ),
    known(
        "label_range",
        r"Target -?\d+ is out of bounds|Received a label value of -?\d+ which is outside the valid range|"
        r"index out of range in self|Assertion `t >= 0 && t < n_classes",
        "a label or an index is outside the range that the model knows",
        "Compare the labels of the data with the number of classes (or tokens) of the model; counting begins at 0.",
    ),
    known(
        "lfs_pointer",
        r"UnpicklingError: invalid load key, 'v'",
        "the checkpoint is a Git LFS pointer, not the file itself",
        "Fetch the file with `git lfs pull`, then upload it again.",
    ),
    known(
        "checkpoint_globals",
        r"Weights only load failed",
        "the checkpoint holds more than weights, and torch.load refuses that by default",
        "If you trust the file: torch.load(..., weights_only=False).",
    ),
    known(
        "checkpoint_mismatch",
        r"Error\(s\) in loading state_dict for|Missing key\(s\) in state_dict|"
        r"(?:net|network).{0,60}parameter.{0,60}(?:shape|not).{0,60}(?:checkpoint|param_dict)",
        "the checkpoint belongs to another model",
        "Load the checkpoint of this model, or drop the layers that differ (strict=False leaves out missing ones).",
    ),
    known(
        "bad_data",
        r"DataLossError: .{0,300}(?:corrupted record|TFRecord)",
        "a data file is damaged or not of the kind that the script expects",
        "Upload the file again and compare its size; is it a TFRecord file at all?",
    ),
    known(
        "checkpoint_corrupt",
        r"PytorchStreamReader failed|UnpicklingError|invalid header or archive is corrupted|EOFError: Ran out of input|"
        r"Failed to read the checkpoint file|[Uu]nable to (?:synchronously )?open (?:file|object).{0,60}(?:truncated|signature)|"
        r"The (?:ckpt|checkpoint) file.{0,80}(?:corrupted|may be damaged|is empty)|SafetensorError: Error while deserializing|"
        r"DataLossError|Checksum does not match",
        "a checkpoint is damaged or incomplete",
        "Use an earlier checkpoint; write checkpoints under another name first and rename them when they are whole.",
    ),
    known(
        "illegal_instruction",
        r"Illegal instruction",
        "a program uses instructions that this machine's processor does not have",
        "Install a build for this processor (aarch64 or x86-64, without AVX-512).",
    ),
    known(
        "segfault",
        r"Segmentation fault|segfault|signal SIGSEGV|Signal code: Address not mapped|SIGSEGV",
        "native code crashed (segmentation fault)",
        "Packages of different versions are the usual reason: check requirements.txt, and run with "
        "PYTHONFAULTHANDLER=1 to see the line.",
    ),
    known(
        "abort",
        r"free\(\): invalid|double free or corruption|corrupted size vs\. prev_size|malloc\(\): |"
        r"\*\*\* stack smashing|Fatal Python error: Aborted|Floating point exception",
        "native code crashed",
        "Packages of different versions are the usual reason: check requirements.txt, and run with "
        "PYTHONFAULTHANDLER=1 to see the line.",
    ),
    known(
        "killed",
        r"(?:^|\s)Killed(?:\s|$)|\bSIGKILL\b|Signal 9 \(|signal 9 \(Killed\)|oom-kill|exitcode: -9",
        "a process was killed, as a rule because memory ran out",
        "Choose a flavor with more memory, or reduce the batch size and num_workers.",
    ),
)

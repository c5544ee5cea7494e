"""hanji as a backend of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("hanji")      # torchrun, multiprocessing, hanji run, any init_method

Importing this module registers the backend; where torch loads entry points of the groups
"torch.distributed.backends" or "torch.backends", installing it is enough. See docs/python.md of
hanji for what it does.
"""

import atexit
import multiprocessing.util
import os

__all__ = ["monitored_barrier", "register"]

_living = {}  # by process: a fork must not leave its parent's groups


def _leave():
    """A rank that ends without destroy_process_group() leaves, rather than dies, for the others."""
    if os.getpid() in _living:
        _living[os.getpid()].leave()


def _living_here():
    from . import _C  # the first group pays for it, not `import torch`

    if os.getpid() not in _living:
        _living[os.getpid()] = _C.Living()
        atexit.register(_leave)
        multiprocessing.util.Finalize(None, _leave, exitpriority=100)  # its children skip atexit
    return _living[os.getpid()]


def _create(options, _backend_options):
    ranks = ",".join(map(str, options.global_ranks_in_group))
    name = f"{options.group_id} (ranks {ranks})" if ranks else options.group_id
    return _living_here().meet(options.store, options.group_rank, options.group_size,
                               options.timeout, name)


def register():
    """Registers backend "hanji" for CPU tensors; once, however often it is called."""
    # Not at the top: where this module is imported first, torch imports it again for its entry point.
    import torch.distributed as dist

    if dist.is_available() and "HANJI" not in dist.Backend._plugins:
        dist.Backend.register_backend("hanji", _create, extended_api=True, devices=["cpu"])


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier(), which refuses every backend but Gloo."""
    import torch.distributed as dist

    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return  # as torch's own: only members meet
    limit = {} if timeout is None else {"timeout": timeout}
    (group or dist.group.WORLD).monitored_barrier(wait_all_ranks=wait_all_ranks, **limit)


register()

// A stand-in for librccl.so.1 beside the simulator's libamdhip64, so that programs which compare with RCCL start under
// the simulator: each of its calls fails and says why. RCCL itself asks for drivers that are not there.
#define FAILS(name) \
  extern "C" int name() { return 2; }  // ncclSystemError

FAILS(ncclGetUniqueId)
FAILS(ncclCommInitRank)
FAILS(ncclCommCount)
FAILS(ncclCommDestroy)
FAILS(ncclCommWindowRegister)
FAILS(ncclMemAlloc)
FAILS(ncclMemFree)
FAILS(ncclAllGather)
FAILS(ncclAllReduce)
FAILS(ncclReduceScatter)
FAILS(ncclGroupStart)
FAILS(ncclGroupEnd)
FAILS(ncclSend)
FAILS(ncclRecv)

extern "C" char const* ncclGetErrorString(int result) { return result ? "fusewire-sim has no RCCL" : "no error"; }

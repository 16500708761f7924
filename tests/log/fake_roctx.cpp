// Stands in for ROCm's library of ranges, and prints what it is told.
#include <cstdio>

extern "C" int roctxRangePushA(char const* name) { return std::fprintf(stderr, "push %s\n", name); }
extern "C" int roctxRangePop() { return std::fprintf(stderr, "pop\n"); }

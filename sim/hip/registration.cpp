// The calls of the code that clang generates around kernels: registration at start-up, and the two halves of <<<...>>>.
#include "hip/runtime.hpp"

using namespace fusewire::sim;

namespace {

struct fat_binary_wrapper {
  u32 magic, version;
  void const* bundle;
  void* unused;
};

struct configuration {
  dim3 grid, block;
  size_t lds;
  hipStream_t stream;
};
thread_local std::vector<configuration> configurations;

}  // namespace

extern "C" {

void** __hipRegisterFatBinary(void const* data) {
  runtime& r = runtime::get();
  lock l = r.enter();
  return reinterpret_cast<void**>(
      r.modules().add_bundle(readable_from(static_cast<fat_binary_wrapper const*>(data)->bundle)));
}

void __hipUnregisterFatBinary(void** module) {
  runtime& r = runtime::get();
  lock l = r.enter();
  if (!r.pending()) r.modules().remove(reinterpret_cast<module_source*>(module));
}

void __hipRegisterFunction(void** module, void const* stub, char*, char const* name, unsigned, void*, void*, void*,
                           void*, int*) {
  runtime& r = runtime::get();
  lock l = r.enter();
  r.modules().add_function(reinterpret_cast<module_source*>(module), stub, name);
}

void __hipRegisterVar(void** module, void* host, char*, char const* name, int, size_t, int, int) {
  runtime& r = runtime::get();
  lock l = r.enter();
  reinterpret_cast<module_source*>(module)->variables.push_back({host, name});
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds, hipStream_t stream) {
  configurations.push_back({grid, block, lds, stream});
  return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* lds, hipStream_t* stream) {
  if (configurations.empty()) return hipErrorMissingConfiguration;
  configuration const c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *lds = c.lds, *stream = c.stream;
  return hipSuccess;
}

}  // extern "C"

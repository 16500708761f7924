#include "hip/launch.hpp"

#include <algorithm>
#include <cstdio>

#include "machine/report.hpp"

namespace fusewire::sim {
namespace {

bool hidden(kernel_argument const& a) { return a.kind.starts_with("hidden_"); }

/// hipExtModuleLaunchKernel and hipModuleLaunchKernel may pass one packed buffer instead of pointers.
bool packed(void** extra, std::vector<u8>& out) {
  void const* data = nullptr;
  size_t size = 0;
  for (; extra && *extra != HIP_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER) data = extra[1];
    else if (*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(extra[1]);
    else return false;
  }
  if (!data) return false;
  std::memcpy(out.data(), data, std::min(size, out.size()));
  return true;
}

void fill_hidden(kernel_launch& l, kernel_work const& w, host_services& services) {
  std::vector<u8>& segment = l.kernarg;
  kernel const& k = *l.kernel;
  auto const put = [&](kernel_argument const& a, u64 value) {
    std::memcpy(&segment[static_cast<std::size_t>(a.offset)], &value, static_cast<std::size_t>(a.size));
  };
  for (kernel_argument const& a : k.arguments) {
    if (!hidden(a)) continue;
    auto const axis = static_cast<std::size_t>(a.kind.back() - 'x');
    if (a.kind.starts_with("hidden_block_count_")) put(a, w.grid[axis]);
    else if (a.kind.starts_with("hidden_group_size_")) put(a, w.block[axis]);
    else if (a.kind == "hidden_grid_dims")
      put(a, w.grid[2] > 1 || w.block[2] > 1 ? 3 : w.grid[1] > 1 || w.block[1] > 1 ? 2 : 1);
    else if (a.kind == "hidden_dynamic_lds_size") put(a, w.lds);
    else if (a.kind == "hidden_hostcall_buffer") put(a, services.hostcall_buffer(l.gpu));
    else if (a.kind == "hidden_printf_buffer") put(a, services.printf_buffer(l));
  }
}

/// The hsa_kernel_dispatch_packet_t that kernels may read.
void fill_packet(u8* p, kernel_launch const& l) {
  auto const put = [p](int at, auto x) { std::memcpy(p + at, &x, sizeof x); };
  put(2, static_cast<u16>(3));  // dimensions
  for (int d = 0; d < 3; ++d) put(4 + 2 * d, static_cast<u16>(l.block[d])), put(12 + 4 * d, l.grid[d] * l.block[d]);
  put(24, static_cast<u32>(l.kernel->scratch));
  put(28, static_cast<u32>(l.lds));
  put(40, reinterpret_cast<u64>(l.kernarg.data()));
}

}  // namespace

std::shared_ptr<kernel_launch> runtime::launch(ihipStream_t const& s, kernel_work const& w) {
  auto l = std::make_shared<kernel_launch>();
  l->kernel = modules_.kernel_of(*w.what, s.device);
  l->gpu = s.device;
  l->cus = cus_of(s);
  std::copy_n(w.grid, 3, l->grid);
  std::copy_n(w.block, 3, l->block);
  l->lds = l->kernel->lds + static_cast<int>(w.lds);
  std::size_t const segment = (static_cast<std::size_t>(l->kernel->kernarg_bytes) + 63) & ~std::size_t{63};
  l->kernarg.resize(segment + 64);
  std::ranges::copy(w.arguments, l->kernarg.begin());
  fill_hidden(*l, w, services_);
  fill_packet(&l->kernarg[segment], *l);
  l->dispatch_packet = reinterpret_cast<u64>(&l->kernarg[segment]);
  return l;
}

hipError_t prepare(runtime& r, function const& f, int device, dim3 grid, dim3 block, void** arguments, void** extra,
                   u64 lds, kernel_work& out) {
  if (f.device >= 0 && f.device != device) return hipErrorInvalidDevice;
  if (arguments && extra) return hipErrorInvalidValue;
  kernel const* k = r.modules().kernel_of(f, device);
  if (!k) return f.source->problem.empty() ? hipErrorInvalidDeviceFunction : hipErrorNoBinaryForGpu;
  u64 const threads = u64{block.x} * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || !threads || threads > 1024) return hipErrorInvalidConfiguration;
  for (u64 const extent : {u64{grid.x} * block.x, u64{grid.y} * block.y, u64{grid.z} * block.z})
    if (extent > ~u32{0}) return hipErrorInvalidConfiguration;
  if (threads > static_cast<u64>(k->max_threads)) {
    std::fprintf(stderr, "fusewire-sim: %s: a block of %llu threads; its launch bounds allow %d\n",
                 k->demangled.c_str(), static_cast<unsigned long long>(threads), k->max_threads);
    return hipErrorLaunchFailure;
  }
  if (lds > lds_per_cu || static_cast<u64>(k->lds) + lds > lds_per_cu) return hipErrorInvalidValue;
  if (groups_per_cu(*k, static_cast<u32>(threads), static_cast<u32>(static_cast<u64>(k->lds) + lds)) == 0)
    return hipErrorLaunchOutOfResources;
  out.what = &f;
  out.grid[0] = grid.x, out.grid[1] = grid.y, out.grid[2] = grid.z;
  out.block[0] = block.x, out.block[1] = block.y, out.block[2] = block.z;
  out.lds = static_cast<u32>(lds);
  std::size_t bytes = 0;
  for (kernel_argument const& a : k->arguments)
    if (!hidden(a)) bytes = std::max(bytes, static_cast<std::size_t>(a.offset + a.size));
  out.arguments.assign(bytes, 0);
  if (arguments) {
    int i = 0;
    for (kernel_argument const& a : k->arguments)
      if (!hidden(a))
        std::memcpy(&out.arguments[static_cast<std::size_t>(a.offset)], arguments[i++],
                    static_cast<std::size_t>(a.size));
  } else if (bytes && !packed(extra, out.arguments)) {
    return hipErrorInvalidValue;
  }
  return hipSuccess;
}

hipError_t submit(runtime& r, ihipStream_t& s, hipGraphNodeType type, work w) {
  if (hipError_t const e = implicit_capture(r, s); e != hipSuccess) return e;
  if (hipError_t const e = refuse_invalid(s); e != hipSuccess) return e;
  if (!capture_work(s, type, w)) r.enqueue(s, std::move(w));
  return hipSuccess;
}

hipError_t submit(runtime& r, ihipStream_t& s, kernel_work w) {
  return submit(r, s, hipGraphNodeTypeKernel, std::move(w));
}

namespace {

hipError_t launch_on(hipStream_t stream, function const* f, dim3 grid, dim3 block, void** arguments, void** extra,
                     u64 lds, bool cooperative, char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!f) return hipErrorInvalidDeviceFunction;
        ihipStream_t* s = r.stream_of(stream, this_thread().device);
        if (!s) return hipErrorInvalidHandle;
        kernel_work w;
        if (hipError_t const e = prepare(r, *f, s->device, grid, block, arguments, extra, lds, w); e != hipSuccess)
          return e;
        if (cooperative) {
          kernel const* k = r.modules().kernel_of(*f, s->device);
          u64 const fit =
              u64{groups_per_cu(*k, block.x * block.y * block.z, static_cast<u32>(k->lds) + static_cast<u32>(lds))} *
              static_cast<u64>(r.machine().settings.cus);
          if (u64{grid.x} * grid.y * grid.z > fit) return hipErrorCooperativeLaunchTooLarge;
        }
        return submit(r, *s, std::move(w));
      },
      call);
}

function const* function_at(void const* stub) {
  runtime& r = runtime::get();
  lock l = r.enter();
  return r.modules().find_function(stub);
}

/// Null when its module is unloaded.
function const* function_of(hipFunction_t handle) {
  auto const* f = reinterpret_cast<function const*>(handle);
  runtime& r = runtime::get();
  lock l = r.enter();
  return r.modules().has(f) ? f : nullptr;
}

}  // namespace
}  // namespace fusewire::sim

using namespace fusewire::sim;

extern "C" {

hipError_t hipLaunchKernel(void const* stub, dim3 grid, dim3 block, void** arguments, size_t lds, hipStream_t stream) {
  return launch_on(stream, function_at(stub), grid, block, arguments, nullptr, lds, false);
}

hipError_t hipLaunchCooperativeKernel(void const* stub, dim3 grid, dim3 block, void** arguments, unsigned lds,
                                      hipStream_t stream) {
  return launch_on(stream, function_at(stub), grid, block, arguments, nullptr, lds, true);
}

hipError_t hipExtLaunchKernel(void const* stub, dim3 grid, dim3 block, void** arguments, size_t lds, hipStream_t stream,
                              hipEvent_t start, hipEvent_t stop, int) {
  if (start)
    if (hipError_t const e = hipEventRecord(start, stream); e != hipSuccess) return e;
  if (hipError_t const e = hipLaunchKernel(stub, grid, block, arguments, lds, stream); e != hipSuccess) return e;
  return stop ? hipEventRecord(stop, stream) : hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned lds, hipStream_t stream, void** arguments, void** extra) {
  return launch_on(stream, function_of(f), {gx, gy, gz}, {bx, by, bz}, arguments, extra, lds, false);
}

hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                            unsigned by, unsigned bz, unsigned lds, hipStream_t stream,
                                            void** arguments) {
  return launch_on(stream, function_of(f), {gx, gy, gz}, {bx, by, bz}, arguments, nullptr, lds, true);
}

static hipError_t load_module_data(hipModule_t* module, std::span<u8 const> image,
                                   char const* call = __builtin_FUNCTION()) {
  return api(
      [&](runtime& r, lock&) {
        if (!module || !image.data()) return hipErrorInvalidValue;
        module_source* m = r.modules().add_bundle(image);
        if (!r.modules().load(*m, this_thread().device)) {
          r.modules().remove(m);
          return hipErrorNoBinaryForGpu;
        }
        m->device = this_thread().device;
        *module = reinterpret_cast<hipModule_t>(m);
        hold(m, std::string(call) + ": a module");
        return hipSuccess;
      },
      call);
}

hipError_t hipModuleLoadData(hipModule_t* module, void const* image) {
  return load_module_data(module, readable_from(image));
}

hipError_t hipModuleLoadDataEx(hipModule_t* module, void const* image, unsigned, hipJitOption*, void**) {
  return load_module_data(module, readable_from(image));
}

hipError_t hipModuleLoad(hipModule_t* module, char const* path) {
  std::FILE* f = path ? std::fopen(path, "rb") : nullptr;
  if (!f) return remember(hipErrorFileNotFound);
  std::vector<u8> bytes;
  for (int c; (c = std::fgetc(f)) != EOF;) bytes.push_back(static_cast<u8>(c));
  std::fclose(f);
  if (bytes.empty()) return remember(hipErrorInvalidImage);
  return load_module_data(module, bytes);
}

hipError_t hipModuleUnload(hipModule_t module) {
  return api([&](runtime& r, lock& l) {
    if (!module) return hipErrorInvalidResourceHandle;
    if (!r.modules().has(reinterpret_cast<module_source*>(module))) return hipErrorNotFound;
    r.wait(l, [&] { return !r.pending(); });
    r.modules().remove(reinterpret_cast<module_source*>(module));
    let_go(module);
    return hipSuccess;
  });
}

/// HIP ends the process where a module is used while another device is current (DynCO::CheckDeviceIdMatch).
static hipError_t find_module(runtime& r, hipModule_t handle, module_source*& found) {
  found = reinterpret_cast<module_source*>(handle);
  if (!handle) return hipErrorInvalidValue;
  if (!r.modules().has(found)) return hipErrorNotFound;
  if (found->device >= 0 && found->device != this_thread().device)
    report_call(std::string(this_thread().call) + ": the module was loaded on GPU " + std::to_string(found->device) +
                ", and GPU " + std::to_string(this_thread().device) + " is current: HIP ends the process here");
  return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* f, hipModule_t module, char const* name) {
  return api([&](runtime& r, lock&) {
    if (!f || !name) return hipErrorInvalidValue;
    module_source* m = nullptr;
    if (hipError_t const e = find_module(r, module, m); e != hipSuccess) return e;
    function const* found = r.modules().function_of(*m, name, this_thread().device);
    *f = reinterpret_cast<hipFunction_t>(const_cast<function*>(found));
    return found ? hipSuccess : hipErrorNotFound;
  });
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t* pointer, size_t* bytes, hipModule_t module, char const* name) {
  return api([&](runtime& r, lock&) {
    if (!name) return hipErrorInvalidValue;
    module_source* m = nullptr;
    if (hipError_t const e = find_module(r, module, m); e != hipSuccess) return e;
    auto const v = r.modules().variable(*m, name, this_thread().device);
    if (!v) return hipErrorNotFound;
    if (pointer) *pointer = reinterpret_cast<hipDeviceptr_t>(v->at);
    if (bytes) *bytes = v->size;
    return hipSuccess;
  });
}

hipError_t hipGetFuncBySymbol(hipFunction_t* f, void const* stub) {
  return api([&](runtime& r, lock&) {
    function const* found = r.modules().find_function(stub);
    if (f) *f = reinterpret_cast<hipFunction_t>(const_cast<function*>(found));
    return found ? hipSuccess : hipErrorInvalidDeviceFunction;
  });
}

}  // extern "C"

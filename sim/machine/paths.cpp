#include "machine/paths.hpp"

namespace fusewire::sim {
namespace {

u32 mixed(u64 x) { return static_cast<u32>((x * 0x9e3779b97f4a7c15u) >> 32); }
u32 channel_of(u64 line) { return mixed(line >> 1) % memory_paths::channels; }  // 256 bytes to a channel

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- a CU

cu_path::set_of_lines& cu_path::set_of(u64 number) {
  if (!sets_) sets_ = std::make_unique<set_of_lines[]>(sets);
  set_of_lines& s = sets_[(number ^ number >> 6 ^ number >> 12) % sets];
  if (s.age != age_) s = {}, s.age = age_;
  return s;
}

cu_path::line* cu_path::find(u64 number) {
  set_of_lines& s = set_of(number);
  for (u32 i = 0; i < ways; ++i)
    if (s.lines[i].number == number) {
      std::rotate(s.lines, s.lines + i, s.lines + i + 1);
      return &s.lines[0];
    }
  return nullptr;
}

cu_path::line& cu_path::insert(u64 number) {
  set_of_lines& s = set_of(number);
  std::rotate(s.lines, s.lines + ways - 1, s.lines + ways);
  s.lines[0] = {number, 0, 0};
  return s.lines[0];
}

void cu_path::drop(u64 number) {
  if (!sets_) return;
  for (line& l : set_of(number).lines)
    if (l.number == number) l = {};
}

double cu_path::wait_for_slot(double time, std::size_t misses) {
  if (misses_.size() != misses) misses_.assign(misses, 0);
  return std::max(time, misses_[next_miss_ % misses]);
}

void memory_request::add(u64 address, u64 bytes) {
  for (u64 const end = address + bytes; address < end;) {
    u64 const line = address / line_bytes, stop = std::min(end, (line + 1) * line_bytes);
    u32 const both = (address ^ (stop - 1)) & 64 ? 128 : 64;
    u32 i = count;
    u32 const first = count > 8 ? count - 8 : 0;
    while (i > first && pieces[i - 1].line != line) --i;
    if (i > first) {
      piece& p = pieces[i - 1];
      if (p.bytes == 64 && (both == 128 || (address & 64) != p.half)) p.bytes = 128;
    } else {
      pieces[count++] = {line, both, static_cast<u32>(address & 64)};
    }
    address = stop;
  }
}

// ------------------------------------------------------------------------------------------------------------ the node

memory_paths::memory_paths(timing const& t, node& n)
    : t_(t), node_(n), count_(static_cast<std::size_t>(n.settings.gpus)), links_(count_ * count_) {
  for (std::size_t g = 0; g < count_; ++g) gpus_.push_back(std::make_unique<gpu_path>());
  auto const rate = [&](double gbs) { return t.bytes_per_cycle(gbs); };
  double const part = n.settings.partitions;
  mall_latency_ = t.from_ns(t.mall_ns) - t.l2_latency, hbm_latency_ = t.from_ns(t.hbm_ns) - t.l2_latency;
  link_latency_ = t.from_ns(t.link_ns), host_latency_ = t.from_ns(t.host_ns);
  link_rate_ = rate(t.link_gbs) * t.link_efficiency, host_rate_ = rate(t.host_gbs);
  hbm_rate_ = rate(t.hbm_gbs) * t.hbm_efficiency / channels / part, mall_rate_ = rate(t.mall_gbs) / channels / part;
  l2_rate_ = t.l2_bytes * t.l2_efficiency, l2_write_rate_ = t.l2_write_bytes * t.l2_efficiency;
  fabric_rate_ = t.fabric_bytes * t.fabric_efficiency;
  l2_return_ = t.l2_latency - t.l2_arrival;
}

/// The time at a GPU's memory side, from arrival there: when a line that is read leaves it, or when a line that is
/// written has reached it. The MALL passes writes on to the HBM at once.
double memory_paths::memory(int gpu, double time, u64 line, u32 bytes, bool write, traffic& counts) {
  gpu_path& g = *gpus_[static_cast<std::size_t>(gpu)];
  u32 const c = channel_of(line);
  double const m = g.mall_channel[c].take(now, time, bytes / mall_rate_);
  counts.mall += bytes;
  bool const hit = g.mall.touch(line, false).hit;
  if (hit && !write) return m + mall_latency_;
  counts.hbm += bytes;
  double const h = g.hbm[c].take(now, m, bytes / hbm_rate_);
  // Writes wait in the MALL's queue, of 4 KB a channel
  return write ? std::max(m, h - 4096 / hbm_rate_) + mall_latency_ : h + hbm_latency_;
}

double memory_paths::send(int from, int to, double time, double bytes) {
  link& l = link_to(from, to);
  link const* const all = &link_to(from, 0);
  bool const alone = std::none_of(all, all + count_, [&](link const& o) { return &o != &l && o.busy_until > time; });
  double const cycles = bytes / (alone ? link_rate_ : link_rate_ * t_.link_beside);
  double const begin = l.wire.take(now, time, cycles);
  l.bytes += static_cast<u64>(bytes), l.busy_until = std::max(l.busy_until, begin + cycles);
  if (trace) trace->link(from, to, static_cast<u64>(begin), static_cast<u64>(bytes));
  return begin + cycles + link_latency_;
}

/// A line that the XCD has written goes to its memory; returns when it is there.
double memory_paths::write_line(int gpu, int xcd, double time, u64 line, traffic& counts) {
  allocation const* const a = node_.memory.find(line * line_bytes);
  int const owner = a && a->gpu >= 0 ? a->gpu : gpu;
  double const left = gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(xcd)].fabric.take(
      now, time, line_bytes / fabric_rate_);
  ++counts.lines_written_back;
  if (owner == gpu) return memory(gpu, left, line, line_bytes, true, counts);
  counts.link_out += line_bytes;
  return memory(owner, send(gpu, owner, left, line_bytes), line, line_bytes, true, counts) + link_latency_;
}

passage memory_paths::request(cu_path& c, int gpu, int xcd, double time, memory_request const& r, traffic& counts) {
  using kind = memory_request::kind;
  double at = std::max(time, c.pipe_free);
  u32 bytes = 0;
  for (u32 i = 0; i < r.count; ++i) bytes += r.pieces[i].bytes;
  counts.l1 += bytes;
  c.pipe_free = at + std::max(t_.address_cycles, bytes / t_.l1_bytes);
  passage all{at + 16, at + 16 + lookahead};
  bool const may_keep = r.what == kind::read && !r.uncached && !r.bits.sc1 && r.owner >= 0;
  bool past_l1 = false;
  if (r.owner >= 0)
    for (u32 i = 0; i < r.count; ++i) {
      u64 const line = r.pieces[i].line;
      gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(xcd)].l2.announce(line);
      gpus_[static_cast<std::size_t>(r.owner)]->mall.announce(line);
      __builtin_prefetch(reinterpret_cast<void const*>(line * line_bytes));
      __builtin_prefetch(reinterpret_cast<void const*>(line * line_bytes + 64));
    }
  for (u32 i = 0; i < r.count; ++i) {
    auto const& p = r.pieces[i];
    double const from = at;
    at += p.bytes / t_.l1_bytes;
    cu_path::line* kept = nullptr;
    if (may_keep) {
      if ((kept = c.find(p.line))) {
        all.effect = std::max({all.effect, from + 16, kept->taken}),
        all.done = std::max({all.done, from + t_.l1_latency, kept->ready});
        continue;
      }
      kept = &c.insert(p.line);
    } else {
      c.drop(p.line);
    }
    past_l1 = true;
    counts.l2 += p.bytes;
    auto const misses = static_cast<std::size_t>(t_.l1_misses);
    double const arrival = (r.what == kind::write ? from : c.wait_for_slot(from, misses)) + t_.l2_arrival;
    passage const one = r.owner < 0      ? host(gpu, arrival, r, p, counts)
                        : r.owner == gpu ? local(gpu, xcd, arrival, r, p, counts)
                                         : remote(gpu, xcd, arrival, r, p, counts);
    if (r.what != kind::write) c.miss_until(one.done);
    if (kept) kept->taken = one.effect, kept->ready = one.done;
    all.effect = std::max(all.effect, one.effect), all.done = std::max(all.done, one.done);
  }
  if (past_l1) {
    bool const direct = r.owner != gpu && (r.uncached || r.bits.sc0);  // to the owner, past the own L2
    double& latest = c.latest[r.owner < 0 ? 1 : direct ? static_cast<std::size_t>(2 + r.owner) : 0];
    latest = all.effect = std::max(all.effect, latest);
  }
  all.done = std::max(all.done, all.effect + lookahead);
  return all;
}

passage memory_paths::local(int gpu, int xcd, double arrival, memory_request const& r, memory_request::piece const& p,
                            traffic& counts) {
  using kind = memory_request::kind;
  gpu_path& g = *gpus_[static_cast<std::size_t>(gpu)];
  xcd_path& x = g.xcds[static_cast<std::size_t>(xcd)];
  bool const write = r.what == kind::write;
  double const held = p.bytes / (write ? l2_write_rate_ : l2_rate_);
  double const at = x.channel[mixed(p.line) % l2_channels].take(now, arrival, held);
  auto const leave = [&](double time, u32 bytes) { return x.fabric.take(now, time, bytes / fabric_rate_); };
  if (r.what == kind::atomic) {  // at the memory side, for the XCDs to agree
    double const turn = g.atomics[mixed(p.line) % g.atomics.size()].take(now, at, t_.atomic_service);
    double const there =
        r.uncached ? memory(gpu, leave(turn, 64), p.line, 64, false, counts) : turn + t_.atomic_latency;
    return {turn, there + t_.atomic_service + l2_return_};
  }
  if (write && (r.uncached || r.bits.sc1)) {
    double const there = memory(gpu, leave(at, p.bytes), p.line, p.bytes, true, counts);
    return {r.uncached ? there - mall_latency_ / 2 : at, there + l2_return_};
  }
  if (write) {
    auto const t = x.l2.touch(p.line, true);
    if (!t.was_dirty) x.written.push_back(p.line);
    if (t.evicted_dirty) write_line(gpu, xcd, at, t.victim, counts);
    return {at, at + l2_return_};
  }
  auto& coming = x.in_flight[mixed(p.line) % x.in_flight.size()];
  if (!r.uncached) {
    auto const t = x.l2.touch(p.line, false);
    if (t.evicted_dirty) write_line(gpu, xcd, at, t.victim, counts);
    if (t.hit) return {at, coming.there(p.line, at) + l2_return_};
  }
  u32 const bytes = r.uncached ? p.bytes : static_cast<u32>(line_bytes);
  double const ready = memory(gpu, leave(at, bytes), p.line, bytes, false, counts);
  if (!r.uncached) coming = {p.line, at, ready};
  return {r.uncached ? ready - mall_latency_ / 2 : at, ready + l2_return_};
}

passage memory_paths::remote(int gpu, int xcd, double arrival, memory_request const& r, memory_request::piece const& p,
                             traffic& counts) {
  using kind = memory_request::kind;
  xcd_path& x = gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(xcd)];
  bool const write = r.what == kind::write, system = r.bits.sc0 && r.bits.sc1;
  bool const kept = !r.uncached && !system && r.what != kind::atomic;
  double const at =
      x.channel[mixed(p.line) % l2_channels].take(now, arrival, p.bytes / (write ? l2_write_rate_ : l2_rate_));
  auto& coming = x.in_flight[mixed(p.line) % x.in_flight.size()];
  if (kept) {
    auto const t = x.l2.touch(p.line, write);
    if (t.evicted_dirty) write_line(gpu, xcd, at, t.victim, counts);
    if (write) {
      if (!t.was_dirty) x.written.push_back(p.line);
      return {at, at + l2_return_};
    }
    if (t.hit) return {at, coming.there(p.line, at) + l2_return_};
    x.of_peers.push_back(p.line);
  }
  double const left = x.fabric.take(now, at, p.bytes / fabric_rate_);
  if (r.what == kind::read) {
    u32 const bytes = kept ? static_cast<u32>(line_bytes) : p.bytes;
    double const there = send(gpu, r.owner, left, t_.link_request);
    double const ready = memory(r.owner, there, p.line, bytes, false, counts), back = send(r.owner, gpu, ready, bytes);
    counts.link_in += bytes, counts.link_out += static_cast<u64>(t_.link_request);
    if (kept) coming = {p.line, at, back};
    return {there, back + l2_return_};
  }
  counts.link_out += p.bytes;
  double const there = send(gpu, r.owner, left, p.bytes);
  if (write) {
    double const written = memory(r.owner, there, p.line, p.bytes, true, counts);
    return {there, written + link_latency_ + l2_return_};
  }
  gpu_path& o = *gpus_[static_cast<std::size_t>(r.owner)];
  double const turn = o.atomics[mixed(p.line) % o.atomics.size()].take(now, there, t_.atomic_service);
  return {turn, send(r.owner, gpu, memory(r.owner, turn, p.line, 64, false, counts), 64) + l2_return_};
}

passage memory_paths::host(int gpu, double arrival, memory_request const& r, memory_request::piece const& p,
                           traffic& counts) {
  gpu_path& g = *gpus_[static_cast<std::size_t>(gpu)];
  counts.host += p.bytes;
  bool const write = r.what == memory_request::kind::write;
  double const there = g.to_host.take(now, arrival, (write ? p.bytes : t_.link_request) / host_rate_) + host_latency_;
  if (write) return {there, there + host_latency_ + l2_return_};
  return {there, g.from_host.take(now, there, p.bytes / host_rate_) + host_latency_ + l2_return_};
}

double memory_paths::scalar_load(int gpu, int xcd, double time, u64 address, traffic& counts) {
  allocation const* const a = node_.memory.find(address);
  memory_request r;
  r.owner = a ? a->gpu : gpu;  // a kernel's arguments lie in memory of the GPU
  r.uncached = a && a->kind == memory_kind::uncached;
  r.add(address, 64);
  passage const p = r.owner < 0      ? host(gpu, time + t_.l2_arrival, r, r.pieces[0], counts)
                    : r.owner == gpu ? local(gpu, xcd, time + t_.l2_arrival, r, r.pieces[0], counts)
                                     : remote(gpu, xcd, time + t_.l2_arrival, r, r.pieces[0], counts);
  return p.done;
}

double memory_paths::writeback(int gpu, int xcd, double time, bool system, traffic& counts) {
  xcd_path& x = gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(xcd)];
  double const from = time + t_.l2_arrival + t_.writeback_walk;
  double done = from;
  ++counts.writebacks;
  std::size_t kept = 0;
  for (u64 const line : x.written) {
    allocation const* const a = node_.memory.find(line * line_bytes);
    if (!system && a && a->gpu >= 0 && a->gpu != gpu) {
      x.written[kept++] = line;
      continue;
    }
    if (x.l2.clean(line)) done = std::max(done, write_line(gpu, xcd, from, line, counts));
  }
  x.written.resize(kept);
  return done + l2_return_;
}

void memory_paths::drop_remote(int gpu, int xcd) {
  xcd_path& x = gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(xcd)];
  for (u64 const line : x.of_peers) x.l2.remove_clean(line);
  x.of_peers.clear();
}

double memory_paths::kernel_ends(int gpu, double time, traffic& counts) {
  double done = time;
  for (int x = 0; x < node_.xcds(); ++x)
    if (!gpus_[static_cast<std::size_t>(gpu)]->xcds[static_cast<std::size_t>(x)].written.empty())
      done = std::max(done, writeback(gpu, x, time, false, counts));
  return done;
}

double memory_paths::hbm_busy(int gpu) const {
  double busy = 0;
  for (resource const& r : gpus_[static_cast<std::size_t>(gpu)]->hbm) busy += r.busy();
  return busy;
}

}  // namespace fusewire::sim

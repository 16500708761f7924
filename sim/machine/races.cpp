#include "machine/races.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "isa/program.hpp"
#include "machine/report.hpp"
#include "machine/scheduler.hpp"

namespace fusewire::sim {
namespace {

constexpr u32 all_bytes = 15;
constexpr u32 index_of(u32 entry) { return entry >> 4; }

}  // namespace

race_checker::race_checker(node& n) : node_(n), base_(n.memory.base()) {
  bytes_ = static_cast<u64>(n.settings.gpus) * address_space::region_bytes;
  void* const p = mmap(nullptr, bytes_ / block_bytes * sizeof(shadow_word*), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("fusewire-sim: cannot reserve address space for --races");
    std::_Exit(exit_code_of_a_report);
  }
  directory_ = static_cast<shadow_word**>(p);
  records_.emplace_back();  // 0 is no record
}

// --------------------------------------------------------------------------------------------------- streams, launches

u32 race_checker::new_stream(int gpu) {
  auto const same = std::ranges::find_if(free_streams_, [&](u32 s) { return gpu_of_[s] == gpu; });
  if (same != free_streams_.end()) {
    u32 const s = *same;
    free_streams_.erase(same);
    return s;
  }
  gpu_of_.push_back(gpu);
  latest_.resize(gpu_of_.size() * max_xcds);
  return static_cast<u32>(gpu_of_.size() - 1);
}

void race_checker::publish(order& o, int gpu) const {
  if (!o) return;
  order_clock& c = o.own();
  c.renew();
  for (u32 s = 0; s < gpu_of_.size(); ++s)
    if (gpu_of_[s] == gpu)
      for (u32 x = 0; x < max_xcds; ++x) c.published.join(c.before, s * max_xcds + x);
}

void race_checker::begins(kernel_launch& l) {
  launches_.push_back({&*kernels_.insert(l.kernel->demangled).first,
                       l.kernel->code->shared_from_this(),
                       l.stream,
                       {l.grid[0], l.grid[1], l.grid[2]}});
  l.race_note = static_cast<u32>(launches_.size() - 1);
}

void race_checker::begins(resident_group& g, u64 number) {
  auto r = std::make_unique<race_group>();
  r->launch = g.from->race_note, r->number = static_cast<u32>(number);
  r->stream = g.from->stream, r->gpu = g.from->gpu, r->xcd = g.xcd;
  r->domain = r->stream * max_xcds + static_cast<u32>(g.xcd);
  r->slot = static_cast<u32>(number / static_cast<u64>(node_.xcds()) % epochs::count);
  r->epoch = ++latest_[r->domain][r->slot];
  r->now = g.from->before;
  r->waves.resize(g.waves.size());
  g.memory.races = std::move(r);
  groups_.push_back(&g);
}

void race_checker::ends(resident_group& g) {
  race_group& r = *g.memory.races;
  for (race_wave& v : r.waves)
    for (auto const& u : v.writes) records_[u.record].epoch = r.epoch;
  order_clock& after = g.from->after.own();
  if (r.now) after.join(*r.now);
  after.before.raise(r.domain, r.slot, r.epoch);
  u32& latest = latest_[r.domain][r.slot];
  latest = std::max(latest, r.epoch);
  std::erase(groups_, &g);
  g.memory.races.reset();
}

// -------------------------------------------------------------------------------------------------- releases, acquires

void race_checker::writeback(wave& w, cache_bits bits) {
  if (!bits.sc1) return;
  race_wave& v = w.pending->group->races->waves[w.index];
  v.system = bits.sc0 || (v.releasing && v.system);
  v.releasing = true, v.release_number = w.pending->issued;
}

void race_checker::waited(wave& w, u64 done) {
  race_group& g = *w.pending->group->races;
  race_wave& v = g.waves[w.index];
  if (!v.writes.empty()) {
    std::erase_if(v.writes, [&](race_wave::unfinished const& u) {
      if (u.number > done) return false;
      records_[u.record].epoch = g.epoch;
      return true;
    });
    ++v.interval;
  }
  if (!v.releasing || v.release_number > done) return;
  v.releasing = false;
  order_clock& c = g.now.own();
  c.renew();
  c.before.raise(g.domain, g.slot, g.epoch);
  if (v.system)
    for (u32 s = 0; s < gpu_of_.size(); ++s)
      if (gpu_of_[s] == g.gpu) c.published.join(c.before, s * max_xcds + static_cast<u32>(g.xcd));
  g.released = g.now;
  ++g.epoch;
}

/// A wave has found a word that was stored with `o`. It knows at once which writebacks were over by then; on what comes
/// before the store it may rely after its next buffer_inv, or another wave's if they have met.
void race_checker::acquire(race_group& g, order const& o) {
  if (!o || o == g.released) return;
  u64 const serial = o->serial, at = serial % g.joined.size();
  if (g.joined[at] == serial) return;
  if (g.published[at] != serial) {
    g.now.own().published.join(o->published);
    g.published[at] = serial;
  }
  if (g.polled[at] == serial) return;
  g.polled[at] = serial;
  join(g.pending, o);
}

void race_checker::invalidate(wave& w, cache_bits bits) {
  race_group& g = *w.pending->group->races;
  if (!bits.sc1 || !g.pending) return;
  g.now.own().before.join(g.pending->before);
  g.pending = {};
  for (u64& serial : g.polled)
    if (serial) g.joined[serial % g.joined.size()] = std::exchange(serial, 0);
}

// ------------------------------------------------------------------------------------------------------------ accesses

shadow_word* race_checker::words(u64 address) {
  shadow_word*& block = directory_[(address - base_) / block_bytes];
  if (!block) {
    void* const p = mmap(nullptr, block_bytes / 4 * sizeof(shadow_word), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      std::perror("fusewire-sim: no memory for --races");
      std::_Exit(exit_code_of_a_report);
    }
    block = static_cast<shadow_word*>(p);
    blocks_.push_back(block);
  }
  return block + (address - base_) % block_bytes / 4;
}

void race_checker::forget(u64 address, u64 bytes) {
  if (address - base_ >= bytes_) return;
  for (u64 a = address & ~u64{3}; a < address + bytes;) {
    u64 const end = std::min(address + bytes, (a / block_bytes + 1) * block_bytes);
    if (directory_[(a - base_) / block_bytes]) {
      shadow_word* const first = words(a);
      std::fill(first, first + (end - a + 3) / 4, shadow_word{});
    }
    a = end;
  }
}

u32 race_checker::new_record() {
  if (free_records_.empty()) {
    records_.emplace_back();
    return static_cast<u32>(records_.size() - 1);
  }
  u32 const i = free_records_.back();
  free_records_.pop_back();
  return i;
}

/// Gives back the records that no word of memory refers to any more.
void race_checker::collect() {
  for (shadow_word const* block : blocks_)
    for (u64 i = 0; i < block_bytes / 4; ++i) {
      records_[index_of(block[i].writer)].marked = true;
      for (u32 const r : block[i].reader) records_[index_of(r)].marked = true;
    }
  for (resident_group* g : groups_) {
    g->memory.races->ordered = {};
    for (race_wave& v : g->memory.races->waves) {
      v.recent = {};
      for (auto const& u : v.writes) records_[u.record].marked = true;
    }
  }
  for (u32 i = 1; i < records_.size(); ++i) {
    access_record& r = records_[i];
    if (!r.marked && r.used) r = {}, free_records_.push_back(i);
    r.marked = false;
  }
  if (free_records_.size() < records_.size() / 2) collect_at_ = 2 * records_.size();
}

/// The record of what this instruction does; executions between which nothing happens that orders them share one.
u32 race_checker::record_of(wave& w, race_group& g, race_wave& v, access kind, bool atomic, u32 pc) {
  auto& here = v.recent[pc % v.recent.size()];
  bool const writes = kind != access::read;
  u64 const key = u64{g.epoch} << 32 | (writes ? v.interval : 0);
  if (here.pc != pc || here.key != key) {
    u32 const i = new_record();
    here = {pc, i, key};
    access_record& r = records_[i];
    r = {pc,
         g.epoch,
         g.launch,
         g.number,
         static_cast<u16>(g.domain),
         static_cast<u8>(g.slot),
         static_cast<u8>(w.index),
         writes,
         atomic,
         true,
         false,
         {}};
    if (writes && atomic) r.released = g.released;
    if (kind == access::write) r.epoch = 0, v.writes.push_back({i, w.pending->issued});
  } else if (kind == access::write) {
    auto const same = std::ranges::find(v.writes, here.record, &race_wave::unfinished::record);
    same->number = w.pending->issued;
  }
  return here.record;
}

/// The record of an update of a word that was stored or updated before: who acquires the sum acquires both.
u32 race_checker::with_clock_of(u32 record, u32 before) {
  access_record const& b = records_[before];
  if (!b.atomic || !b.released || b.released == records_[record].released) return record;
  u32 const i = new_record();
  access_record& r = records_[i];
  r = records_[record];
  join(r.released, records_[before].released);
  return i;
}

race_checker::relation race_checker::relate(race_group const& g, access_record const& r, int memory_gpu) const {
  if (r.launch == g.launch && r.group == g.number) return relation::ordered;
  if (r.epoch == 0 || !g.now || g.now->before.at(r.domain, r.slot) < r.epoch) return relation::unordered;
  int const gpu = gpu_of_[r.domain / max_xcds], xcd = r.domain % max_xcds;
  bool const coherent = gpu == g.gpu && (memory_gpu == gpu || xcd == g.xcd);
  if (!r.writes || coherent || g.now->published.at(r.domain, r.slot) >= r.epoch) return relation::ordered;
  return relation::unpublished;
}

void race_checker::check(race_group& g, u32 entry, u32 record, u32 mask, int memory_gpu, u64 address) {
  u32 const key = index_of(entry) << 1 | (memory_gpu != g.gpu);
  u32& known = g.ordered[key % g.ordered.size()];
  if (known == key) return;
  access_record const& other = records_[index_of(entry)];
  if (!(entry & mask) || (other.atomic && records_[record].atomic)) return;
  relation const how = relate(g, other, memory_gpu);
  if (how != relation::ordered) report(records_[record], other, how, address);
  known = key;
}

void race_checker::note(wave& w, access kind, cache_bits bits, u32 pc, u64 mask, u64 const* address, int bytes) {
  race_group& g = *w.pending->group->races;
  race_wave& v = g.waves[w.index];
  bool const atomic = kind == access::update || bits.sc1;
  if (free_records_.empty() && records_.size() >= collect_at_) collect();
  u32 record = 0;
  for (u64 m = mask; m; m &= m - 1) {
    u64 const a = address[std::countr_zero(m)], end = a + static_cast<u64>(bytes);
    if (a - base_ >= bytes_) continue;  // memory of the host, or arguments
    if (!record) record = record_of(w, g, v, kind, atomic, pc);
    int const memory_gpu = static_cast<int>((a - base_) / address_space::region_bytes);
    for (u64 word = a & ~u64{3}; word < end; word += 4) {
      shadow_word& s = *words(word);
      u32 touched = all_bytes;
      if (word < a) touched &= all_bytes << (a - word);
      if (word + 4 > end) touched &= all_bytes >> (word + 4 - end);
      if (s.writer) check(g, s.writer, record, touched, memory_gpu, word);
      if (kind == access::read) {
        if (atomic) acquire(g, records_[index_of(s.writer)].released);
        s.reader[g.stream % shadow_word::readers] = record << 4 | touched;
        continue;
      }
      for (u32& r : s.reader)
        if (r) check(g, r, record, touched, memory_gpu, word), r = 0;
      u32 mine = record;
      if (kind == access::update && s.writer) {
        acquire(g, records_[index_of(s.writer)].released);
        mine = with_clock_of(record, index_of(s.writer));
      }
      s.writer = mine << 4 | touched;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- reports

std::string race_checker::place_of(access_record const& r) const {
  launch_note const& l = launches_[r.launch];
  u32 const x = r.group % l.grid[0], y = r.group / l.grid[0] % l.grid[1], z = r.group / l.grid[0] / l.grid[1];
  std::string text = "GPU " + std::to_string(gpu_of_[l.stream]) + ", kernel " + *l.kernel + ", workgroup (" +
                     std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + "), wave " +
                     std::to_string(r.wave);
  location const at = where_is(*l.code, r.pc - 1);
  return text + "\n    " + at.instruction + (at.source.empty() ? "" : "  [" + at.source + "]");
}

void race_checker::report(access_record const& mine, access_record const& other, relation how, u64 address) const {
  allocation const* const a = node_.memory.find(address);
  part* const p = a && a->parts ? a->parts->before(address) : nullptr;
  auto const what = [](access_record const& r) {
    return std::string(r.atomic ? "atomic " : "") + (r.writes ? "write" : "read");
  };
  std::string place = describe(node_.memory, address, a);
  if (p && p->covers(address, 1))
    place = std::to_string(address - p->base) + " bytes into " + p->name + ", at " + place;
  std::string text = "race: nothing orders this " + what(mine) + " behind an earlier " + what(other) +
                     " of the same bytes, at " + place;
  if (how == relation::unpublished)
    text = "race: a flag or a stream orders this " + what(mine) +
           " behind an earlier write of the same bytes, but XCD " + std::to_string(other.domain % max_xcds) +
           " of GPU " + std::to_string(gpu_of_[other.domain / max_xcds]) +
           " has not released the write at system scope, so other GPUs need not see it; at " + place;
  text += "\n  this " + what(mine) + ": " + place_of(mine) + "\n  earlier " + what(other) + ": " + place_of(other);
  if (how == relation::unordered)
    text +=
        other.writes && other.epoch == 0
            ? "\n  missing: the wave that wrote has not waited for its store, so no signal of its workgroup covers it"
            : "\n  missing: a signal behind the earlier access and a wait for it here, or a stream, an event or a "
              "wait of the host between the two kernels";
  report_call(text);
}

}  // namespace fusewire::sim

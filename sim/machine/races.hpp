#pragma once
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "machine/clocks.hpp"

namespace fusewire::sim {

struct allocation;
struct group_memory;
struct kernel_launch;
struct node;
struct resident_group;

/// Who has accessed some bytes, from where, and in which epoch of its workgroup.
struct access_record {
  u32 pc = 0;      // behind the instruction
  u32 epoch = 0;   // 0: a write that its wave has not waited for
  u32 launch = 0;  // in race_checker::launches_
  u32 group = 0;   // its number in the grid
  u16 domain = 0;
  u8 slot = 0;  // in the domain
  u8 wave = 0;
  bool writes = false, atomic = false, used = false, marked = false;
  order released;  // of a store or an update that a later load may acquire
};

/// What is kept of the latest accesses to 4 bytes: indices of records, 4 bits up, and a mask of the bytes.
struct shadow_word {
  static constexpr u32 readers = 3;  // of streams that have the same number modulo 3, the latest
  u32 writer = 0;
  std::array<u32, readers> reader{};
};

/// What the checker keeps about a wave.
struct race_wave {
  struct remembered {
    u32 pc = 0, record = 0;
    u64 key = 0;
  };
  struct unfinished {
    u32 record;
    u64 number;  // of the latest store, in the wave's count of operations
  };
  std::array<remembered, 32> recent{};  // by pc
  std::vector<unfinished> writes;       // that the wave has not waited for
  u32 interval = 1;                     // counts waits
  bool releasing = false, system = false;
  u64 release_number = 0;
};

/// What the checker keeps about a workgroup.
struct race_group {
  u32 launch = 0, number = 0, domain = 0, slot = 0, epoch = 1;
  int gpu = 0, xcd = 0;
  u32 stream = 0;
  order now, released, pending;   // what it knows, knew at its latest release, may take over with its next acquire
  std::array<u32, 64> ordered{};  // records that came before it; by index
  std::array<u64, 16> joined{}, published{}, polled{};  // clocks that are in `now`, or in `pending`; by serial number
  std::vector<race_wave> waves;
};

/// Option --races: reports two accesses to the same bytes by different workgroups, one of them a write and not both
/// atomic, that nothing orders. It follows what orders them on gfx942, in whichever order they happen in this run:
///
///   writes --the wave's wait--> its workgroup --buffer_wbl2 and wait--> what the wave stores next with sc1, or updates
///     --load or update with sc1--> the wave's next buffer_inv --> its workgroup
///
/// and streams, events, and the host's waits. For another GPU, a write must also have been released at system scope by
/// its XCD, as weak_memory has it. Waves of a workgroup share what they know: races within one are not looked for.
class race_checker {
 public:
  explicit race_checker(node&);

  // Streams and the host
  u32 new_stream(int gpu);
  void drop_stream(u32 stream) { free_streams_.push_back(stream); }
  /// What the GPU's kernels have written, as far as `o` knows it, is in memory.
  void publish(order& o, int gpu) const;
  void forget(u64 address, u64 bytes);  // memory that has been given back

  // Launches and workgroups
  void begins(kernel_launch&);
  void begins(resident_group&, u64 number);
  void ends(resident_group&);

  // What waves do
  enum class access { read, write, update };
  /// `pc`: behind the instruction. With sc1 reads and writes are atomic.
  void note(wave&, access, cache_bits, u32 pc, u64 mask, u64 const* address, int bytes);
  void writeback(wave&, cache_bits);
  void invalidate(wave&, cache_bits);
  void waited(wave&, u64 done);  // for its operations up to number `done`

 private:
  struct launch_note {
    std::string const* kernel;
    std::shared_ptr<struct program const> code;  // also when its module is unloaded
    u32 stream, grid[3];
  };
  static constexpr u64 block_bytes = 65536;  // of memory, for which shadow words are allocated together
  shadow_word* words(u64 address);
  u32 record_of(wave&, race_group&, race_wave&, access, bool atomic, u32 pc);
  u32 new_record();
  u32 with_clock_of(u32 record, u32 before);
  void collect();
  static void acquire(race_group&, order const&);
  enum class relation { ordered, unordered, unpublished };
  relation relate(race_group const&, access_record const&, int memory_gpu) const;
  void check(race_group&, u32 entry, u32 record, u32 mask, int memory_gpu, u64 address);
  std::string place_of(access_record const&) const;
  [[noreturn]] void report(access_record const& mine, access_record const& other, relation, u64 address) const;

  node& node_;
  std::vector<int> gpu_of_;  // by stream
  std::vector<u32> free_streams_;
  std::set<std::string> kernels_;
  std::vector<std::array<u32, epochs::count>> latest_;  // by domain: the latest epoch of each workgroup's counter
  std::deque<launch_note> launches_;
  std::deque<access_record> records_;
  std::vector<u32> free_records_;
  std::size_t collect_at_ = std::size_t{1} << 20;
  std::vector<resident_group*> groups_;
  shadow_word** directory_ = nullptr;
  u64 base_ = 0, bytes_ = 0;
  std::vector<shadow_word*> blocks_;
};

}  // namespace fusewire::sim

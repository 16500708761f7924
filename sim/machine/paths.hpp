#pragma once
#include <array>
#include <memory>
#include <vector>

#include "machine/cache.hpp"
#include "machine/node.hpp"
#include "machine/profile.hpp"
#include "machine/resource.hpp"
#include "machine/trace.hpp"
#include "machine/timing.hpp"

namespace fusewire::sim {

/// The L1 of a CU, and what the CU waits for beyond it.
class cu_path {
 public:
  struct line {
    u64 number = 0;
    double taken = 0, ready = 0;  // when its value was taken, when it is there
  };
  /// The line, if the L1 holds it or waits for it; else null.
  line* find(u64 number);
  line& insert(u64 number);  // one that find() does not have
  void drop(u64 number);
  void invalidate() { ++age_; }

  double pipe_free = 0;  // of the address unit and the L1
  // Operations on one memory take effect in the order of issue: local, host, of each peer
  std::array<double, 2 + max_gpus> latest{};
  double wait_for_slot(double time, std::size_t misses);  // when one more miss may leave
  void miss_until(double ready) { misses_[next_miss_++ % misses_.size()] = ready; }

 private:
  static constexpr u32 sets = 64, ways = 4;  // 32 KB
  struct set_of_lines {
    u64 age = 0;
    line lines[ways];
  };
  set_of_lines& set_of(u64 number);
  std::unique_ptr<set_of_lines[]> sets_;
  u64 age_ = 1;
  std::vector<double> misses_;
  std::size_t next_miss_ = 0;
};

/// The lines that one vector memory instruction asks for.
struct memory_request {
  enum class kind : u8 { read, write, atomic };
  struct piece {
    u64 line;   // address / 128
    u32 bytes;  // 64 or 128
    u32 half;   // of 64: which, 0 or 64
  };
  kind what = kind::read;
  cache_bits bits;
  int owner = 0;          // GPU; -1: the host
  bool uncached = false;  // memory that no cache keeps
  u32 count = 0;
  piece pieces[2 * lanes];
  void add(u64 address, u64 bytes);
};

/// When an operation takes effect, and when its wave may know. At least `lookahead` cycles lie between the two, and
/// also between its issue and its effect for another CU.
struct passage {
  double effect = 0, done = 0;
};

/// The memory system of the node, line by line: which caches hold a line, and the queues of the L2 channels, the
/// fabric, the MALL, the HBM channels and the links.
class memory_paths {
 public:
  memory_paths(timing const&, node&);
  static constexpr double lookahead = 96;

  trace_log* trace = nullptr;
  double now = 0;  // no request will come for an earlier time
  passage request(cu_path&, int gpu, int xcd, double time, memory_request const&, traffic&);
  double scalar_load(int gpu, int xcd, double time, u64 address, traffic&);  // when it is there, past the scalar cache
  /// buffer_wbl2: when what the XCD had written is in memory
  double writeback(int gpu, int xcd, double time, bool system, traffic&);
  void drop_remote(int gpu, int xcd);                  // buffer_inv at system scope: lines of peers
  double kernel_ends(int gpu, double time, traffic&);  // when the release at agent scope is done

  double hbm_busy(int gpu) const;  // cycles, of all channels
  static constexpr u32 channels = 128, l2_channels = 16;
  struct link {
    resource wire;
    u64 bytes = 0;
    double busy_until = 0;  // with what it has been given so far
  };
  link const& link_of(int from, int to) const {
    return links_[static_cast<std::size_t>(from) * count_ + static_cast<std::size_t>(to)];
  }

 private:
  struct xcd_path {
    tag_array<2048, 16> l2;  // 4 MB
    std::array<resource, l2_channels> channel;
    resource fabric;
    std::vector<u64> written, of_peers;  // lines that may be dirty; lines of peers that were read
    struct coming {
      u64 line = 0;
      double since = 0, ready = 0;  // when it was asked for, when it is there
      /// For a request at `time` of a line that the L2 has or waits for. A CU whose turn comes later may ask for an
      /// earlier time; then its request is the one that fetches the line.
      double there(u64 wanted, double time) {
        if (line != wanted) return time;
        if (time < since) ready -= since - time, since = time;
        return std::max(ready, time);
      }
    };
    std::vector<coming> in_flight = std::vector<coming>(4096);
  };
  struct gpu_path {
    std::array<xcd_path, max_xcds> xcds;
    tag_array<131072, 16> mall;  // 256 MB
    std::array<resource, channels> mall_channel, hbm;
    std::array<resource, 1024> atomics;  // by line
    resource to_host, from_host;
  };
  link& link_to(int from, int to) {
    return links_[static_cast<std::size_t>(from) * count_ + static_cast<std::size_t>(to)];
  }
  double memory(int gpu, double time, u64 line, u32 bytes, bool write, traffic&);
  double send(int from, int to, double time, double bytes);
  double write_line(int gpu, int xcd, double time, u64 line, traffic&);
  passage local(int gpu, int xcd, double arrival, memory_request const&, memory_request::piece const&, traffic&);
  passage remote(int gpu, int xcd, double arrival, memory_request const&, memory_request::piece const&, traffic&);
  passage host(int gpu, double arrival, memory_request const&, memory_request::piece const&, traffic&);

  timing const& t_;
  node& node_;
  std::size_t count_;
  std::vector<std::unique_ptr<gpu_path>> gpus_;
  std::vector<link> links_;
  // in cycles, from t_
  double mall_latency_, hbm_latency_, link_latency_, host_latency_, link_rate_, host_rate_, hbm_rate_, mall_rate_,
      l2_rate_, l2_write_rate_, fabric_rate_, l2_return_;
};

}  // namespace fusewire::sim

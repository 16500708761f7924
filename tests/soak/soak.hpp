// What the parts of the soak test share. A subject is an operator whose inputs follow from a generation: a counter in
// device memory, so that every replay of a graph has inputs of its own. Every element that it writes is checked on the
// device.
#pragma once
#include <fusewire/fusewire.hpp>

#include <memory>
#include <string>
#include <vector>

namespace soak {

using namespace fusewire;

/// Problems are drawn up to these.
struct sizes {
  int m, n, k;        // AG+GEMM; k is rounded to what the ranks need
  int batch, tokens;  // Flash Decode: sequences, tokens of one of them on one rank
};

/// In device memory, of one rank.
struct progress {
  unsigned generation;
  unsigned wrong;  // elements; the first of them:
  int subject, extent[3], at[2];
  unsigned of_generation;
  float found, wanted;
};

/// What a check kernel notes of an element.
struct checker {
  soak::progress* progress;
  int subject, extent[3];

  __device__ unsigned generation() const { return progress->generation; }
  __device__ void compare(float found, float wanted, int i, int j) const {
    if (found == wanted || atomic_ref<unsigned, scope::device>(&progress->wrong).fetch_add(1u, order::relaxed) != 0)
      return;
    progress->subject = subject;
    for (int x = 0; x < 3; ++x) progress->extent[x] = extent[x];
    progress->at[0] = i, progress->at[1] = j;
    progress->of_generation = progress->generation;
    progress->found = found, progress->wanted = wanted;
  }
};

__host__ __device__ inline unsigned hash(unsigned a, unsigned b, unsigned c) {
  unsigned h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
  h = (h ^ h >> 15) * 2246822519u;
  h = (h ^ h >> 13) * 3266489917u;
  return h ^ h >> 16;
}
/// -range to range.
__host__ __device__ inline int small(unsigned a, unsigned b, unsigned c, int range) {
  return int(hash(a, b, c) % unsigned(2 * range + 1)) - range;
}

/// The same sequence on every rank, where it is asked alike.
struct random_source {
  unsigned state;
  unsigned operator()() { return hash(state++, 77, 5); }
  int below(int n) { return int((*this)() % unsigned(n)); }
  /// 1 to most, small numbers as often as large ones.
  int up_to(int most) {
    int scale = most;
    for (int i = below(8); i > 0 && scale > 1; --i) scale /= 2;
    return 1 + below(scale);
  }
};

/// One rank and what its subjects share.
struct rank_state {
  fusewire::world& world;
  fusewire::heap& heap;
  fusewire::channel& channel;
  sizes size;
  progress* now;  // device memory

  hipStream_t stream() const { return world.stream(); }
  template <class T>
  T* allocate(std::size_t count) {
    T* const p = heap.view().here(heap.allocate<T>(count));
    check_hip(hipMemsetAsync(p, 0, count * sizeof(T), stream()), "hipMemsetAsync");
    return p;
  }
  /// A kernel that waits for nobody.
  template <class... P, class... A>
  void local(int blocks, int threads, void (*kernel)(P...), A const&... arguments) const {
    kernel<<<dim3(unsigned(blocks)), dim3(unsigned(threads)), 0, stream()>>>(static_cast<P>(arguments)...);
    check_hip(hipGetLastError(), "kernel launch");
  }
};

class subject {
 public:
  virtual ~subject() = default;
  virtual std::string name() const = 0;
  /// A shape for the next steps, the same on every rank.
  virtual void draw(random_source& random) = 0;
  /// Enqueues: inputs of this generation, one launch of the operator, the check. Returns how many elements are checked.
  virtual long long step(int number) = 0;
  /// Enqueues a launch that differs from the others', where this rank is the one that is wrong.
  virtual void disagree(bool wrong) = 0;
};

using factory = std::unique_ptr<subject> (*)(rank_state&);
/// Everything that is tested. Files add what they hold.
inline std::vector<factory>& factories() {
  static std::vector<factory> all;
  return all;
}

}  // namespace soak

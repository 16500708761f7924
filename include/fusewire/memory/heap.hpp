// The symmetric heap: the same offset means the same array on every rank.
//
//   bulk segment    hipMalloc                               data
//   signal segment  uncached on gfx942                      watch | flags, barriers, all that kernels poll
#pragma once
#include <array>
#include <concepts>
#include <span>
#include <vector>

#include <fusewire/core/host_code.hpp>
#include <fusewire/device/barrier.hpp>
#include <fusewire/memory/heap_options.hpp>
#include <fusewire/memory/name_table.hpp>
#include <fusewire/memory/simulator.hpp>
#include <fusewire/ranks/world.hpp>

namespace fusewire {

namespace detail {
class heap_state;

/// What a heap asks of an array's type.
struct element_type {
  std::size_t bytes, alignment;  // of an element
  bool in_signal;                // where it lives
  std::string (*name)();
  void (*name_flags)(name_table&, std::uint64_t offset, std::uint64_t count);  // null where it is no flag
};
}  // namespace detail

/// Symmetric memory of a world. All ranks make the collective calls in the same order and with the same arguments. If
/// they differ, an error says which rank requested what.
/// Channels, inboxes and operators share the memory, so a heap may end before them. Objects may end in any order, and
/// in another one on each rank: their destructors wait neither for other ranks nor for kernels. A rank's part is freed
/// after the last of them has ended on every rank, in the next collective call of a heap or of world::collect(), or
/// else with the world.
class heap {
 public:
  /// Collective.
  /// Requires: peer access between all devices of the world.
  /// Fails: runtime_failure that names the two ranks, if flags of one rank do not arrive at another. This is tried
  /// on AMD GPUs only, where it depends on memory types.
  heap(fusewire::world& w, heap_options const& options, std::source_location where = std::source_location::current());
  /// The same from what is to lie on it. Otherwise as above.
  template <std::same_as<requirements> R>
  heap(fusewire::world& w, R const& r, std::source_location where = std::source_location::current())
      : heap(w, heap_options::of(r), where) {}
  /// The memory of another heap object, for what is made from it: it ends with the last of them.
  explicit heap(std::shared_ptr<detail::heap_state> shared) : state_(std::move(shared)) {}
  heap(heap const&) = delete;

  /// The ranks that share the heap.
  fusewire::world& world() const;
  /// The view of the world that kernels take by value.
  world_view const& view() const;
  /// What its users share.
  std::shared_ptr<detail::heap_state> const& state() const { return state_; }

  /// Collective. Allocates `count` elements of T on every rank, at the same offset, in the segment where T belongs.
  /// Signal memory starts as zeros.
  /// Fails: out_of_space; rank_mismatch when ranks request different sizes. If world::poll_errors() would throw on a
  /// rank, the call fails on all ranks and allocates nothing.
  template <class T>
  sym<T> allocate(std::size_t count, std::size_t alignment = alignof(T) < 256 ? 256 : alignof(T),
                  std::source_location where = std::source_location::current()) {
    return {allocate(element<T>(), count, alignment, where), count};
  }

  /// Collective. Allocates `count` elements on this rank; every rank passes its own number. 0 is allowed, but not on
  /// all ranks. Every rank reserves as many as the largest, so that offsets are the same everywhere. Otherwise as
  /// allocate().
  template <class T>
  ragged<T> allocate_ragged(std::size_t count, std::size_t alignment = alignof(T) < 256 ? 256 : alignof(T),
                            std::source_location where = std::source_location::current()) {
    ragged<T> x;
    std::size_t const largest = largest_on_ranks(count, x.counts, where);
    static_cast<sym<T>&>(x) = allocate<T>(largest, alignment, where);
    return x;
  }

  /// This rank's own array.
  template <class T>
  T* here(sym<T> x) const {
    return view().here(x);
  }

  /// Copies values to the first elements of this rank's array. The copy waits for earlier work on the world's stream,
  /// and is over when the call returns.
  /// Fails: bad_argument when there are more values than elements.
  template <class T>
  void upload(sym<T> to, std::vector<T> const& from, std::source_location where = std::source_location::current()) {
    require(from.size() <= to.count, where, "heap::upload: ", from.size(), " values; expected at most the ", to.count,
            " elements of the array");
    world().copy(here(to), from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice, "heap::upload", where);
  }
  /// Returns this rank's elements. Waits for earlier work on the world's stream. Fails: runtime_failure.
  template <class T>
  std::vector<T> download(sym<T> from, std::source_location where = std::source_location::current()) {
    std::vector<T> to(from.count);
    world().copy(to.data(), here(from), to.size() * sizeof(T), hipMemcpyDeviceToHost, "heap::download", where);
    return to;
  }
  /// This rank's own elements.
  template <class T>
  std::vector<T> download(ragged<T> const& from, std::source_location where = std::source_location::current()) {
    sym<T> mine = from;
    mine.count = from.counts[view().rank()];
    return download(mine, where);
  }

  /// Gives the array up on this rank. Waits for nothing: kernels that use it may still run. Its memory is free when all
  /// ranks have given it up and, after that, make a collective call of a heap, or world::collect(). A rank that has
  /// something to tell waits in that call for its kernels.
  /// Fails: bad_argument when x is not allocated, or this rank has freed it.
  template <class T>
  void free(sym<T> x, std::source_location where = std::source_location::current()) {
    free(lives_in_signal_segment<T>, x.offset, where);
  }

  /// The offset of p in this rank's bulk segment, in bytes. Fails: bad_argument when [p, p + bytes) is not inside it.
  std::uint64_t offset_of(void const* p, std::size_t bytes, char const* name, std::source_location where) const;

  /// Tells fusewire-sim that `bytes` bytes of an allocation have their own bounds, and this name. The call names the
  /// memory of every rank; every rank makes it. It replaces names that it overlaps.
  /// Requires: no rank uses the memory before all ranks have named it.
  void annotate(bool in_signal, std::uint64_t offset, std::size_t bytes, std::string const& name) const;
  /// The same of rows that have their own bounds. In the name, {0} to {2} stand for a row's numbers.
  void name_rows(bool in_signal, std::uint64_t offset, detail::simulator_rows const& rows,
                 std::string const& name) const;
  /// Tells fusewire-sim that this rank's memory at the offset, which has a name, belongs to one launch at a time. Each
  /// block of that launch does one atomic, by `call`, on the word that is `ticket` bytes into it.
  void name_ticket(std::uint64_t offset, std::size_t ticket, char const* call) const;
  /// The same for a word to which, by `call`, only launches of `least` blocks or more add. Requires: name_ticket().
  void name_least(std::uint64_t offset, std::size_t word, int least, char const* call) const;

  /// The names of this heap's flags and launches in error messages. Operators add those of theirs.
  name_table& names();

  /// Arrays that this rank has not freed, of both segments.
  std::size_t allocations() const;
  /// Arrays that this rank has freed, and that take space because other ranks have not, or have not told it yet.
  std::size_t half_freed() const;

  /// Clears what an abandoned launch left behind, in all of this heap's channels that no rank has ended. Collective;
  /// waits for the device.
  /// Requires: no stream of the device is being captured. Fails: bad_argument where the world's stream is.
  void reset(std::source_location where = std::source_location::current());

  /// A value that must be equal on all ranks, and its name.
  using named = agreed_value;
  /// Collective. Fails: rank_mismatch that names the first value that differs. If `alarmed` is true on a rank, that
  /// rank throws what world::poll_errors() would, and the others throw launch_abandoned.
  void require_equal_on_ranks(char const* call, std::span<named const> values, std::source_location where,
                              bool alarmed = false);

 private:
  template <class T>
  static detail::element_type element() {
    using counter = void (*)(name_table&, std::uint64_t, std::uint64_t);
    counter const flags = std::is_same_v<T, flag>                 ? &name_flags
                          : std::is_same_v<T, barrier_state>      ? &name_barriers
                          : std::is_same_v<T, grid_barrier_state> ? &name_grid_barriers
                                                                  : counter(nullptr);
    return {sizeof(T), alignof(T), lives_in_signal_segment<T>, &detail::type_name<T>, flags};
  }
  std::uint64_t allocate(detail::element_type const& type, std::size_t count, std::size_t alignment,
                         std::source_location where);
  /// The largest count of all ranks. `counts`: that of each.
  std::size_t largest_on_ranks(std::size_t count, std::uint64_t* counts, std::source_location where);
  void free(bool in_signal, std::uint64_t offset, std::source_location where);
  static void name_flags(name_table& names, std::uint64_t offset, std::uint64_t count);
  static void name_barriers(name_table& names, std::uint64_t offset, std::uint64_t count);
  static void name_grid_barriers(name_table& names, std::uint64_t offset, std::uint64_t count);

  std::shared_ptr<detail::heap_state> state_;
};

namespace detail {
/// heap::free() of what may have been freed already.
void retire(heap_state& memory, bool in_signal, std::uint64_t offset);
}  // namespace detail

/// An array of a heap that a rank frees when the owner ends, at its own time.
template <class T>
class owned {
 public:
  /// Owns nothing.
  owned() = default;
  /// Takes over x, which heap::allocate() gave.
  owned(heap const& h, sym<T> x) : memory_(h.state()), x_(x) {}
  /// Takes over what the other owns.
  owned(owned&& o) noexcept : owned() { *this = std::move(o); }
  /// The same; the other then owns what this one did.
  owned& operator=(owned&& o) noexcept {
    std::swap(memory_, o.memory_);
    std::swap(x_, o.x_);
    return *this;
  }
  ~owned() {
    if (memory_) detail::retire(*memory_, lives_in_signal_segment<T>, x_.offset);
  }
  /// The array.
  sym<T> get() const { return x_; }

 private:
  std::shared_ptr<detail::heap_state> memory_;
  sym<T> x_;
};

}  // namespace fusewire

#ifndef FUSEWIRE_HOST_LIBRARY
#include <fusewire/memory/heap.ipp>
#endif

// Bodies of heap.hpp.
#pragma once
#include <algorithm>

#include <fusewire/memory/heap.hpp>
#include <fusewire/memory/heap_state.hpp>

namespace fusewire {

FUSEWIRE_HOST heap::heap(fusewire::world& w, heap_options const& options, std::source_location where)
    : state_(detail::heap_state::make(w, options, where)) {}

FUSEWIRE_HOST fusewire::world& heap::world() const { return state_->world(); }
FUSEWIRE_HOST world_view const& heap::view() const { return state_->view(); }
FUSEWIRE_HOST name_table& heap::names() { return state_->names(); }
FUSEWIRE_HOST std::size_t heap::allocations() const { return state_->allocations(); }
FUSEWIRE_HOST std::size_t heap::half_freed() const { return state_->half_freed(); }
FUSEWIRE_HOST void heap::reset(std::source_location where) { state_->reset(where); }
FUSEWIRE_HOST void heap::require_equal_on_ranks(char const* call, std::span<named const> values,
                                                std::source_location where, bool alarmed) {
  state_->require_equal_on_ranks(call, values, where, alarmed);
}

FUSEWIRE_HOST std::uint64_t heap::allocate(detail::element_type const& type, std::size_t count, std::size_t alignment,
                                           std::source_location where) {
  constexpr std::size_t max_alignment = heap_options::max_alignment;
  require(count > 0, where, "heap::allocate: 0 elements; expected at least 1");
  require((alignment & (alignment - 1)) == 0 && alignment >= type.alignment && alignment <= max_alignment, where,
          "heap::allocate: alignment ", alignment, "; expected a power of two from ", type.alignment, " to ",
          max_alignment);
  require<out_of_space>(count <= (SIZE_MAX - 1) / type.bytes, where, "heap::allocate: ", count, " elements of ",
                        type.bytes, " bytes wanted; at most ", (SIZE_MAX - 1) / type.bytes, " have addresses");
  std::size_t const bytes = count * type.bytes;
  if (type.in_signal) detail::require_no_capture(world().stream(), "heap::allocate of signal memory", where);
  require_equal_on_ranks(
      "heap::allocate",
      std::array{named{"bytes", bytes}, named{"alignment", alignment}, named{"signal segment", type.in_signal}}, where,
      state_->alarmed());
  std::uint64_t const offset = state_->allocate(type.in_signal, bytes, alignment, where);
  if (detail::simulator::get().there())
    annotate(type.in_signal, offset, bytes,
             text("heap::allocate<", type.name(), ">(", count, ") at ", detail::short_place(where)));
  if (!type.in_signal) return offset;
  if (type.name_flags) type.name_flags(names(), offset, count);
  try {
    world().fill(view().signal[view().rank()] + offset, 0, bytes, "heap::allocate", where);
    world().exchange().barrier();  // no peer may signal before it is zero
  } catch (...) {
    state_->retire(true, offset);
    throw;
  }
  return offset;
}

FUSEWIRE_HOST std::size_t heap::largest_on_ranks(std::size_t count, std::uint64_t* counts, std::source_location where) {
  auto const all = world().exchange().all_gather(std::uint64_t(count));
  std::uint64_t const largest = *std::ranges::max_element(all);
  require(largest > 0, where, "heap::allocate_ragged: 0 elements on every rank; expected at least 1 on some rank");
  std::ranges::copy(all, counts);
  return largest;
}

FUSEWIRE_HOST void heap::free(bool in_signal, std::uint64_t offset, std::source_location where) {
  require(state_->retire(in_signal, offset), where, "heap::free: nothing is allocated at offset ", offset, " of the ",
          in_signal ? "signal" : "bulk",
          " segment; expected a sym that allocate() returned and that was not freed yet");
}
FUSEWIRE_HOST void detail::retire(heap_state& memory, bool in_signal, std::uint64_t offset) {
  memory.retire(in_signal, offset);
}

FUSEWIRE_HOST std::uint64_t heap::offset_of(void const* p, std::size_t bytes, char const* name,
                                            std::source_location where) const {
  auto const* const b = static_cast<std::byte const*>(p);
  std::byte const* const base = view().bulk[view().rank()];
  bool const inside = b >= base && b < base + state_->options().bulk &&
                      bytes <= state_->options().bulk - static_cast<std::size_t>(b - base);
  require(inside, where, name, " = ", p, " (", bytes,
          " bytes) is not on the symmetric heap; expected memory from heap::allocate, in [",
          static_cast<void const*>(base), ", ", static_cast<void const*>(base + state_->options().bulk), ")");
  return static_cast<std::uint64_t>(b - base);
}

FUSEWIRE_HOST void heap::annotate(bool in_signal, std::uint64_t offset, std::size_t bytes,
                                  std::string const& name) const {
  state_->annotate(in_signal, offset, bytes, name);
}
FUSEWIRE_HOST void heap::name_rows(bool in_signal, std::uint64_t offset, detail::simulator_rows const& rows,
                                   std::string const& name) const {
  auto const& sim = detail::simulator::get();
  if (!sim.name_rows) return;
  for (int r = 0; r < view().size(); ++r)
    sim.name_rows((in_signal ? view().signal[r] : view().bulk[r]) + offset, &rows, name.c_str());
}
FUSEWIRE_HOST void heap::name_ticket(std::uint64_t offset, std::size_t ticket, char const* call) const {
  auto const& sim = detail::simulator::get();
  std::byte const* const at = view().bulk[view().rank()] + offset;
  if (sim.there()) sim.name_ticket(at, at + ticket, call);
}
FUSEWIRE_HOST void heap::name_least(std::uint64_t offset, std::size_t word, int least, char const* call) const {
  auto const& sim = detail::simulator::get();
  std::byte const* const at = view().bulk[view().rank()] + offset;
  if (sim.name_least) sim.name_least(at, at + word, std::uint64_t(least), call);
}

FUSEWIRE_HOST void heap::name_flags(name_table& names, std::uint64_t offset, std::uint64_t count) {
  names.add_flags(offset, count, [count](std::uint64_t i) { return text("flag ", i, " of ", count); });
}
FUSEWIRE_HOST void heap::name_barriers(name_table& names, std::uint64_t offset, std::uint64_t count) {
  constexpr std::uint64_t flags = sizeof(barrier_state) / sizeof(flag);
  names.add_flags(offset, count * flags, [](std::uint64_t i) {
    return text("barrier ", i / flags, ", flag of rank ", i % flags % max_ranks);
  });
}
FUSEWIRE_HOST void heap::name_grid_barriers(name_table& names, std::uint64_t offset, std::uint64_t count) {
  constexpr std::uint64_t flags = sizeof(grid_barrier_state) / sizeof(flag);
  names.add_flags(offset, count * flags, [](std::uint64_t i) {
    return text("barrier ", i / flags, " over all blocks, flag of rank ", i % flags % max_ranks);
  });
}

}  // namespace fusewire

// Where the K and V of a token are in a paged cache.
#pragma once
#include <cstdint>

#include <fusewire/platform/platform.hpp>

namespace fusewire {

/// The KV cache of one sequence and KV head, in pages.
template <class T>
struct paged_kv {
  T const *k, *v;             // [pages, page size, heads, D], the whole caches
  std::int32_t const* table;  // the whole block table
  unsigned first;             // the sequence's first entry
  int page_shift;             // log2 of the page size
  int heads, head;            // of KV; this one

  /// The number of a token's page. Reads the table.
  __device__ unsigned page(int token) const { return unsigned(table[first + unsigned(token >> page_shift)]); }
  /// Where a token's K and V are: how many rows of D lie before them. page: page(token).
  __device__ unsigned row(unsigned page, int token) const {
    return ((page << page_shift) + (unsigned(token) & ((1u << page_shift) - 1))) * unsigned(heads) + unsigned(head);
  }
};

}  // namespace fusewire

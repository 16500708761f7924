// What a user says about an all-gather + GEMM; see ag_gemm.hpp.
#pragma once
#include <fusewire/core/matrix.hpp>
#include <fusewire/comm/all_gather/gather_map.hpp>
#include <fusewire/gemm/gemm_plan.hpp>
#include <fusewire/gemm/matrix_operand.hpp>
#include <fusewire/gemm/epilogue.hpp>

namespace fusewire {

/// How A travels: every rank stores its shard into all inboxes, or every rank loads the others' shards. `automatic`
/// takes the one that is expected to be faster; like pull it needs A on the symmetric heap.
enum class method { push, pull, automatic };

/// What an operator is made with; the same on every rank.
struct ag_gemm_options {
  int max_m = 0;  // capacity: rows of the gathered A
  int k = 0;      // columns of the gathered A, a multiple of 8; with gather::k of 8 W
  /// The dimension along which A is sharded.
  fusewire::gather gather = gather::k;
  /// How shards travel.
  fusewire::method method = method::push;
  /// Tile, and blocks that share one; what is not named is chosen by the shape.
  gemm_tile tile = gemm_tile::automatic;
  /// Blocks that move A before they multiply; 0 chooses. 0 on Hopper, whose blocks have warps for it, unless the tile
  /// is a generic one.
  int comm_blocks = 0;
  /// Columns of A per flag, rounded up to a multiple of 64; 0 chooses. Tuned kernels double the number until the
  /// channel has enough flags
  int chunk_k = 0;
  int reserved_cus = 0;  // compute units left to other work
  /// gather::k: sum from the local shard on, which starts sooner. If false, ranks with the same B get the same bits
  bool local_shard_first = true;
  /// True: the caller knows that the ranks' options are equal. The constructor is local then, and compares nothing.
  /// Ranks that are threads make their operators before any of them launches: to load a kernel may wait for another's
  bool agreed = false;
};

/// One call. All ranks pass the same m, n and layout, and b's with the same alignment.
template <class T>
struct ag_gemm_call {
  /// gather::k: [M, K/W]; gather::m: [rows of this rank, K]; pull: on the symmetric heap
  matrix<T const> a;
  /// [K, N]; column-major: b.ld is the distance between columns. Tuned kernels read one whose address is a multiple of
  /// 16 and whose ld is one of 8, kernels that are slower any other
  matrix<T const> b;
  matrix<T> c;  // [M, N], of a pair epilogue [M, N / 2]; overlaps neither a nor b
  int m = 0;    // rows of the gathered A, 0 to max_m
  /// How b lies.
  layout b_layout = layout::row_major;
  /// True: no unfinished work on the stream writes b. It may be loaded before that work ends
  bool b_is_constant = false;
};

}  // namespace fusewire

// One block's k slice of a tile of ping_pong_gfx942: the loads, the slices in LDS, the multiplication, and the store.
// Figure and argument: ping_pong_gfx942.hpp.
#pragma once
#include <fusewire/gemm/gfx942/ping_pong_sums.hpp>
#include <fusewire/gemm/tile_source.hpp>

namespace fusewire {

/// One tile of ping_pong_gfx942, or a slice of its k. Rows, Columns: of the tile. Each wave has its own Source.
template <class T, int Rows, int Columns, layout BOrder, tile_source Source>
class ping_pong_tile : detail::ping_pong_shape<T, Rows, Columns, BOrder> {
  using shape = detail::ping_pong_shape<T, Rows, Columns, BOrder>;
  using atom = mma_atom<T>;
  using shape::atoms_m, shape::atoms_n, shape::is_roomy, shape::issues_twice, shape::ring, shape::slice_per_half,
      shape::slice_units, shape::waves;
  using shape::first_column, shape::first_row, shape::sync_waves;
  using typename shape::slice_columns, typename shape::slice_rows;

 public:
  using shape::shared_bytes;
  detail::ping_pong_sums<T, Rows, Columns, BOrder> sums;  // of this wave

  /// The tile of columns n0 and following. a: the launch's buffers of A.
  __device__ ping_pong_tile(void* shared, Source& source, matrix<T const> const* a, b_operand<T> const& b, int n0)
      : shared_(static_cast<bytes16*>(shared)), source_(source), a_(a), b_columns_(b, n0), cols_(a[0].cols),
        at_(source.first()), left_(platform::uniform(source.steps())),
        second_(platform::uniform(wave{}.index() / (waves / 2))) {
    wave const w;
    int const of_wave = platform::uniform(w.index());
    bytes16* const fragments =
        shared_ + (slice_per_half && second_ ? slice_units : 0) + unit_in_slice(w.rank() % 16, w.rank() / 16);
    from_a_ = fragments + first_row(of_wave) * slice_units_per_row;
    from_b_ = fragments + (Rows + first_column(of_wave)) * slice_units_per_row;
    to_a_ = shared_ + slice_rows::first_unit();
    to_b_ = shared_ + Rows * slice_units_per_row + slice_columns::first_unit();
  }

  /// Computes the sums of this wave; the tile has `rows` rows of A. It loads the first steps of B immediately, then
  /// calls on_its_way(), then waits for the first steps of A and loads them. Called by: every thread of the block.
  template <class OnItsWay>
  __device__ void multiply(int rows, OnItsWay const& on_its_way) {
    find_group();
    turn_to_group();
#pragma unroll
    for (int s = 0; s < ring; ++s) issue_b(s);
    on_its_way();
    find_a(true);
    turn_to_a(rows);
#pragma unroll
    for (int s = 0; s < ring; ++s) issue_a(s);
    sums.clear();
    if constexpr (slice_per_half) {
      alternate_slices(rows);
      sums.add_halves(shared_, second_);
    } else {
      take_turns(rows);
    }
  }

 private:
  /// The turns of a wave that multiplies one slice of each step.
  __device__ void alternate_slices(int rows) {
    if (is_roomy) sync_waves();  // LDS no longer holds rows of the previous tile's C
    write<0>(0);
    write<1>(0);
    int now = group_;  // steps in the ring
#pragma unroll
    for (int s = 0; s < ring; ++s) start_next(s, rows);
    sync_waves();
    if (second_) sync_waves();
    while (is_roomy ? group_ > 0 : now > 0) {
      int const loaded = group_;
#pragma unroll
      for (int s = 0; s < ring; ++s) slice_turn<true>(s, rows);
      now = loaded;
    }
    // The last steps come behind the loop: if the loop could end within its ring, clang would wait in each round for
    // the last loads. Without registers for this copy, zeros fill the ring.
    if constexpr (is_roomy) {
#pragma unroll
      for (int s = 0; s < ring; ++s)
        if (s < now) slice_turn<false>(s, rows);
    }
    if (!second_) sync_waves();
  }
  /// Multiplies the ring's s-th step and, if Loads, starts the loads of the next group's s-th step.
  template <bool Loads>
  __device__ void slice_turn(int s, int rows) {
    write<0>((s + 1) % ring);
    write<1>((s + 1) % ring);
    read(slices_of(s));
    if (Loads) {
      issue_b(s);
      issue_a(s);
      start_next(s, rows);
    }
    sync_written(second_);
    multiply_slice();
    sync_written(false);
  }

  /// The turns of a wave that multiplies both slices of each step.
  __device__ void take_turns(int rows) {
    write<0>(0);
    sync_waves();
    if (second_) sync_waves();
    int now = group_;  // steps in the ring
    leave_group();
    turn_to_group();
    while (now > 0) {
      if constexpr (!always_ready<Source>) find_a(second_ == 0), turn_to_a(rows);
      int const loaded = group_;
#pragma unroll
      for (int s = 0; s < ring; ++s) {
        if (s >= now && loaded == 0) break;
        if (s > 0) sync_waves();
        take_turn(s);
      }
      now = loaded;
      sync_waves();
      leave_group();
      turn_to_group();
    }
    if (!second_) sync_waves();
  }
  /// Multiplies the ring's s-th step, and starts the loads of the next group's s-th step.
  __device__ void take_turn(int s) {
    write<1>(s);
    read(0);
    issue_b(s);
    if (!issues_twice) issue_a(s);
    sync_waves();
    multiply_slice();
    sync_waves();
    write<0>((s + 1) % ring);
    read(slice_units);
    if (issues_twice) issue_a(s);  // half of the loads in each of a step's turns
    sync_waves();
    multiply_slice();
  }

  /// The same, but fragments that the wave has begun to read may still be in flight, unless have_come. Requires:
  /// the wave has written nothing to LDS since the last read() or barrier.
  __device__ static void sync_written(bool have_come) {
    constexpr int fragments = atoms_m + atoms_n, all_but_lds = 0xc07f;
    static_assert(fragments < 16);
    __builtin_amdgcn_sched_barrier(0);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __builtin_amdgcn_s_waitcnt(all_but_lds | fragments << 8);  // LDS serves a wave in order, so its writes are over
    if (have_come) __builtin_amdgcn_s_waitcnt(all_but_lds);
    __builtin_amdgcn_s_barrier();
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __builtin_amdgcn_sched_barrier(0);
  }

  /// Finds the group that begins at at_: steps that lie side by side in a buffer of A, at most as many as the ring has.
  __device__ void find_group() {
    int const side_by_side = platform::uniform(source_.left(at_)), most = min(left_, ring);
    group_ = min(side_by_side, most);
  }
  /// Goes on to the next group. Loads are of this one still.
  __device__ void leave_group() {
    source_.advance(at_, group_);
    left_ -= group_;
    there_ -= group_;
    find_group();
  }
  /// Finds the group's A, and returns when it is there; if the source lets others wait, and this wave is not to, at
  /// once. What nearly every group runs is contiguous: a jump costs as much as several instructions, and the other
  /// half of the waves stands still for it.
  __device__ void find_a(bool waits) {
    k_segment run{};
    if constexpr (whole_segments<Source>) {
      if (waits) (void)source_.wait(at_);
      run = source_.where(at_);
    } else {
      if (there_ >= group_) return;
      run = source_.wait(at_);
      there_ = platform::uniform(run.count);
      auto place = at_;
      for (int more = there_; there_ < group_; there_ += more) {
        source_.advance(place, more);
        more = platform::uniform(source_.wait(place).count);
      }
    }
    next_buffer_ = platform::uniform(run.buffer);
    next_row_ = platform::uniform(run.row);
  }
  /// From here on loads are of the group.
  __device__ void turn_to_group() {
    k_ = platform::uniform(source_.k(at_));
    column_ = platform::uniform(source_.column(at_));
    int const left = cols_ - column_;
    columns_ = min(left, group_ * k_step);
  }
  /// Loads of A are of the rows that find_a() has found; the tile has `rows` of them.
  __device__ void turn_to_a(int rows) {
    if (next_buffer_ != buffer_) [[unlikely]]
      rows_.begin(a_[next_buffer_], rows);
    buffer_ = next_buffer_;
    rows_.go_to(next_row_);
  }
  /// All of this, in two of the ring's steps, while fragments are in flight from LDS. It waits as late as it can.
  __device__ void start_next(int s, int rows) {
    if (s == ring - 3) leave_group();
    if (s == ring - 1) {
      if (!always_ready<Source>) find_a(platform::uniform(wave{}.index()) == 0);
      turn_to_group();
      if (!always_ready<Source>) turn_to_a(rows);
    }
  }

  /// Start the loads of the group's s-th step. Steps beyond the group are zeros, and no memory is read for them.
  __device__ void issue_b(int s) { b_columns_.load(s, k_ + s * k_step, columns_of(s)); }
  __device__ void issue_a(int s) { rows_.load(s, column_ + s * k_step, columns_of(s)); }
  /// Columns of the group from its s-th step on: k_step or more, unless the group or A ends within the step.
  __device__ int columns_of(int s) const { return columns_ - s * k_step; }

  /// Where in LDS the slices of the ring's s-th step begin, in units.
  __device__ static constexpr int slices_of(int s) { return slice_per_half ? s % 2 * 2 * slice_units : 0; }
  /// Writes this wave's part of a slice of the ring's s-th step.
  template <int Slice>
  __device__ void write(int s) {
    int const at = slices_of(s) + Slice * slice_units;
    rows_.template write<Slice>(s, to_a_ + at);
    b_columns_.template write<Slice>(s, to_b_ + at);
  }
  /// Reads the fragments of the slice that begins `at` units behind the wave's first one.
  __device__ void read(int at) {
    __builtin_amdgcn_sched_barrier(0);  // so that registers whose values are written to LDS are free
#pragma unroll
    for (int j = 0; j < atoms_n; ++j) fb_[j].row[0] = from_b_[at + j * 16 * slice_units_per_row];
#pragma unroll
    for (int i = 0; i < atoms_m; ++i) fa_[i].row[0] = from_a_[at + i * 16 * slice_units_per_row];
  }
  /// Columns are the matrix instruction's first operand, so that a lane ends up with neighbouring values of one row.
  __device__ void multiply_slice() {
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < atoms_m; ++i)
#pragma unroll
        for (int j = 0; j < atoms_n; ++j) atom::multiply_half(sums.acc[i][j], fb_[j], fa_[i], half);
    __builtin_amdgcn_s_setprio(0);
  }

  bytes16* shared_;
  // In LDS: where this lane writes its first units of A and B in a slice, and where it reads its fragments
  bytes16 *to_a_, *to_b_;
  bytes16 const *from_a_, *from_b_;
  Source& source_;
  matrix<T const> const* a_;
  slice_rows rows_;
  slice_columns b_columns_;
  int const cols_;
  typename atom::b_fragment fa_[atoms_m];
  typename atom::a_fragment fb_[atoms_n];
  typename Source::place at_;  // of the group
  // Steps of the tile from at_ on; steps of the group; steps from at_ on whose A is there
  int left_, group_ = 0, there_ = 0;
  int second_;                          // 1: this wave is one of the second half
  int next_buffer_ = 0, next_row_ = 0;  // where the group's A is
  // The group of steps that is loaded: first row of B, first column of A, columns of A; the buffer that rows_ reads
  int k_ = 0, column_ = 0, columns_ = 0, buffer_ = -1;
};

}  // namespace fusewire

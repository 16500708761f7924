// What check_loads.py looks at: the kernels whose lanes start the copy engine.
#include <fusewire/kernels/ag_gemm_sm90.hpp>

using namespace fusewire;

template <class Tile, layout BOrder>
constexpr auto kernel = &ag_gemm_sm90<bf16, Tile, BOrder, identity>;

void* kernels[] = {(void*)kernel<sm90_slim_tile, layout::column_major>, (void*)kernel<sm90_slim_tile, layout::row_major>, (void*)kernel<sm90_square_tile, layout::column_major>,
                   (void*)kernel<sm90_wide_tile, layout::row_major>, (void*)kernel<sm90_flat_tile, layout::column_major>};

// All operators, with everything to write kernels with. A program that needs one of them compiles faster with its
// header alone, ops/NAME.hpp.
#pragma once
#include <fusewire/fusewire.hpp>
#include <fusewire/ops/ag_gemm.hpp>
#include <fusewire/ops/all_gather.hpp>
#include <fusewire/ops/all_reduce.hpp>
#include <fusewire/ops/all_to_all.hpp>
#include <fusewire/ops/all_to_all_v.hpp>
#include <fusewire/ops/dispatch_gemm.hpp>
#include <fusewire/ops/flash_decode.hpp>
#include <fusewire/ops/gemm.hpp>
#include <fusewire/ops/gemm_all_scatter.hpp>
#include <fusewire/ops/gemm_ar.hpp>
#include <fusewire/ops/gemm_combine.hpp>
#include <fusewire/ops/gemm_rs.hpp>
#include <fusewire/ops/grouped_gemm.hpp>
#include <fusewire/ops/interleave_columns.hpp>
#include <fusewire/ops/moe_combine.hpp>
#include <fusewire/ops/moe_dispatch.hpp>
#include <fusewire/ops/reduce_scatter.hpp>

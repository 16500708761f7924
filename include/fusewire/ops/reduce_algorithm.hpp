// One-shot or two-shot: how every rank gets the sum of all ranks' partial results.
#pragma once

namespace fusewire {

/// one: every rank sends its partial result to all others, and each rank adds them up. two: every rank sends its own to
/// the rank that owns the result; the owner adds up and sends the result to all. Two-shot sends about W / 2 times fewer
/// bytes, but takes one more hop over the links. automatic: the one that is expected to take less time.
enum class reduce_algorithm { automatic, one_shot, two_shot };

}  // namespace fusewire

// One shot or two: how partial results of all ranks become a result that every rank has.
#pragma once

namespace fusewire {

/// one: every rank sends its part to all others, and each adds up what it gets. two: parts go to the rank that owns the
/// result, which adds them up and sends the result to all; about W / 2 times fewer bytes, and one trip over the links
/// more. automatic: what is expected to take less time.
enum class shots { automatic, one, two };

}  // namespace fusewire

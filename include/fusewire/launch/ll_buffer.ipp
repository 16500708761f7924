// Bodies of ll_buffer.hpp.
#pragma once
#include <fusewire/launch/channel.ipp>
#include <fusewire/launch/ll_buffer.hpp>

namespace fusewire {

FUSEWIRE_HOST ll_buffer::ll_buffer(channel& ch, ll_buffer_options const& o, std::source_location where)
    : heap_(ch.heap().state()) {
  constexpr int most = (1 << 29) - 1;
  require(o.records >= 1 && o.words >= 1 && o.words <= most && o.records <= most / padded(o.words), where,
          "ll_buffer: ", o.records, " records of ", o.words, " words; expected at least 1, and up to ", most, " words");
  int const ranks = heap_.world().size();
  view_.records = o.records;
  view_.record_words = o.words;
  view_.stride = padded(o.words);
  words_ = {heap_, heap_.allocate<ll_word<>>(bytes(ranks, o.records, o.words) / sizeof(ll_word<>), 256, where)};
  view_.words = words_.get();
  heap_.names().add_flags(view_.words.offset, view_.words.count * sizeof(ll_word<>) / sizeof(flag),
                          [words = padded(o.words), records = o.records, ranks, name = o.name](std::uint64_t i) {
                            std::uint64_t const at = i * sizeof(flag) / sizeof(ll_word<>) / unsigned(words);
                            return text(name, " ", at % unsigned(records), " of rank ",
                                        at / unsigned(records) % unsigned(ranks), ", slot ",
                                        at / unsigned(records) / unsigned(ranks));
                          });
  std::string const mine = text("the LL buffer at ", detail::short_place(where));
  heap_.names().add_owner(view_.words.offset, mine);
  heap_.name_rows(true, view_.words.offset,
                  {std::uint64_t(o.words) * sizeof(ll_word<>),
                   std::uint64_t(view_.stride) * sizeof(ll_word<>),
                   {std::uint64_t(o.records), std::uint64_t(ranks), 2}},
                  text(o.name, " {0} of rank {1}, slot {2}, in ", mine, ", words = ", o.words));
  heap_.world().exchange().barrier();
}

}  // namespace fusewire

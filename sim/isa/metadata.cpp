#include "metadata.hpp"

#include <llvm/BinaryFormat/MsgPackReader.h>
#include <llvm/Support/Error.h>

namespace fusewire::sim {
namespace {

using llvm::msgpack::Type;

bool read(llvm::msgpack::Reader& from, metadata& to, int depth) {
  constexpr int deepest = 16;
  llvm::msgpack::Object o;
  auto got = from.read(o);
  if (!got) return llvm::consumeError(got.takeError()), false;
  if (!*got || depth > deepest) return false;
  switch (o.Kind) {
    case Type::Int: to.number = u64(o.Int); return true;
    case Type::UInt: to.number = o.UInt; return true;
    case Type::Boolean: to.number = o.Bool; return true;
    case Type::String: to.text = o.Raw.str(); return true;
    case Type::Array:
      for (std::size_t i = 0; i < o.Length; ++i)
        if (!read(from, to.items.emplace_back(), depth + 1)) return false;
      return true;
    case Type::Map:
      for (std::size_t i = 0; i < o.Length; ++i) {
        metadata key, value;
        if (!read(from, key, depth + 1) || !read(from, value, depth + 1)) return false;
        value.key = std::move(key.text);
        if (!value.key.empty()) to.items.push_back(std::move(value));
      }
      return true;
    default: return true;
  }
}

}  // namespace

metadata const* metadata::find(std::string_view wanted) const {
  for (metadata const& item : items)
    if (item.key == wanted) return &item;
  return nullptr;
}

std::optional<metadata> read_metadata(std::span<u8 const> bytes) {
  llvm::msgpack::Reader reader(llvm::StringRef(reinterpret_cast<char const*>(bytes.data()), bytes.size()));
  metadata root;
  if (!read(reader, root, 0)) return std::nullopt;
  return root;
}

}  // namespace fusewire::sim

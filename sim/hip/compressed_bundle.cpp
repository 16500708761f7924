#include "hip/compressed_bundle.hpp"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/Compression.h>
#include <llvm/Support/Error.h>

#include <cstring>
#include <stdexcept>

namespace fusewire::sim {

// magic, u16 version, u16 method (0 zlib, 1 zstd), [v2: u32, v3: u64 file size], u32 or u64 size of the contents, u64
// hash
std::vector<u8> decompress_bundle(std::span<u8 const> bytes) {
  constexpr u64 most = u64{4} << 30;
  auto const read = [bytes](std::size_t at, std::size_t size) {
    if (at + size > bytes.size()) throw std::runtime_error("its compressed bundle is truncated");
    u64 x = 0;
    std::memcpy(&x, bytes.data() + at, size);
    return x;
  };
  u64 const version = read(4, 2), method = read(6, 2);
  if (version != 2 && version != 3)
    throw std::runtime_error("its compressed bundle has version " + std::to_string(version) + "; 2 and 3 are known");
  std::size_t const word = version == 2 ? 4 : 8, start = 8 + 2 * word + 8;
  u64 const file = read(8, word), size = read(8 + word, word);
  if (file < start || file > bytes.size() || size > most)
    throw std::runtime_error("its compressed bundle is truncated or malformed");
  llvm::ArrayRef<u8> const packed(bytes.data() + start, file - start);
  bool const zstd = method == 1;
  if (zstd ? !llvm::compression::zstd::isAvailable() : !llvm::compression::zlib::isAvailable())
    throw std::runtime_error(std::string("it is compressed with ") + (zstd ? "zstd" : "zlib") +
                             ", which this build cannot read; compile with --no-offload-compress");
  llvm::SmallVector<u8, 0> contents;
  llvm::Error error = zstd ? llvm::compression::zstd::decompress(packed, contents, size)
                           : llvm::compression::zlib::decompress(packed, contents, size);
  if (error) throw std::runtime_error("its compressed bundle is damaged: " + llvm::toString(std::move(error)));
  return {contents.begin(), contents.end()};
}

}  // namespace fusewire::sim

#include "fuzz/mutation.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

#include "lockstep/base/text.hpp"
#include "lockstep/io/seal.hpp"
#include "support/temp_dir.hpp"

namespace lockstep::fuzz {

namespace {

/// A number in 0 .. n-1, or 0 if n is 0.
std::size_t below(std::size_t n, Random& random) { return n == 0 ? 0 : random() % n; }

template <std::size_t N>
const auto& any_of(const std::array<std::string_view, N>& choices, Random& random) {
  return choices[below(N, random)];
}

void flip_bit(std::string& bytes, Random& random) {
  if (bytes.empty()) return;
  char& byte = bytes[below(bytes.size(), random)];
  byte = static_cast<char>(byte ^ (1 << below(8, random)));
}

/// Overwrites 1, 2, 4 or 8 bytes with a number at a limit of its type, or a small one.
void set_number(std::string& bytes, Random& random) {
  constexpr std::uint64_t kNumbers[] = {0,
                                        1,
                                        2,
                                        0x7F,
                                        0x80,
                                        0xFF,
                                        0x7FFF,
                                        0xFFFF,
                                        0x7FFFFFFF,
                                        0x80000000,
                                        0xFFFFFFFF,
                                        0x7FFFFFFFFFFFFFFF,
                                        0x8000000000000000,
                                        0xFFFFFFFFFFFFFFFF};
  const std::uint64_t number = kNumbers[below(std::size(kNumbers), random)];
  const std::size_t width = std::size_t{1} << below(4, random);
  if (bytes.size() < width) return;
  std::array<char, 8> stored{};
  std::memcpy(stored.data(), &number, 8);
  if (below(2, random) == 0) std::reverse(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(width));
  bytes.replace(below(bytes.size() - width + 1, random), width, stored.data(), width);
}

void move_block(std::string& bytes, Random& random) {
  const std::size_t from = below(bytes.size(), random),
                    size = 1 + below(std::min<std::size_t>(64, bytes.size()), random);
  const std::string block = bytes.substr(from, size);
  const std::size_t to = below(bytes.size() + 1, random);
  switch (below(4, random)) {
    case 0:
      bytes.insert(to, block);
      break;
    case 1:
      bytes.erase(from, size);
      break;
    case 2:
      bytes.insert(to, size, static_cast<char>(below(256, random)));
      break;
    default:
      bytes.replace(to, std::min(size, bytes.size() - to), block);
  }
}

void change_length(std::string& bytes, Random& random) {
  if (below(3, random) > 0)
    bytes.resize(below(bytes.size() + 1, random));
  else
    bytes.append(below(1000, random), static_cast<char>(below(256, random)));
}

void damage_bytes(std::string& bytes, Random& random) {
  const std::size_t kind = below(10, random);
  if (kind < 4)
    flip_bit(bytes, random);
  else if (kind < 7)
    set_number(bytes, random);
  else if (kind < 9)
    move_block(bytes, random);
  else
    change_length(bytes, random);
}

/// Replaces a run of digits (with sign, point and exponent) behind a random place.
void set_text_number(std::string& text, Random& random) {
  static const std::vector<std::string> kNumbers = split(
      "0,1,-1,,2147483647,2147483648,-2147483649,9223372036854775807,9223372036854775808,"
      "1e40,1e400,-1e-400,nan,inf,-inf,0x10,1.5,"
      "00000000000000000000000000000001,1 2,१,1e,+,99999999999999999999999999999999999999999999,4294967296",
      ',');
  const auto numeric = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-'; };
  const std::size_t start = below(text.size(), random);
  const auto first = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(), numeric);
  const auto last = std::find_if_not(first, text.end(), numeric);
  text.replace(first, last, kNumbers[below(kNumbers.size(), random)]);
}

void change_lines(std::string& text, Random& random) {
  std::size_t begin = text.rfind('\n', below(text.size(), random));
  begin = begin == std::string::npos ? 0 : begin + 1;
  const std::size_t end = std::min(text.find('\n', begin), text.size() - std::min<std::size_t>(1, text.size())) + 1;
  const std::string line = text.substr(begin, end - begin);
  const std::size_t kind = below(3, random);
  if (kind != 0) text.erase(begin, line.size());
  if (kind == 0) text.insert(begin, line);
  if (kind == 1) text.insert(std::min(text.size(), below(text.size() + 1, random)), line);
}

void insert_odd(std::string& text, Random& random) {
  using namespace std::string_view_literals;
  static constexpr std::array<std::string_view, 26> kOdd = {
      "\0"sv, "\xEF\xBB\xBF"sv, "\r"sv,   "\r\n"sv,     "\n"sv, "\t"sv, " "sv,   ","sv,   ";"sv,
      "::"sv, "\""sv,           "'"sv,    "\\"sv,       "#"sv,  "="sv,  "["sv,   "]"sv,   "{"sv,
      "}"sv,  "\x1B[2J"sv,      "\xFF"sv, "\xC3\x28"sv, "é"sv,  "/"sv,  "../"sv, "%s%n"sv};
  const std::size_t times = below(20, random) == 0 ? 2000 : 1;
  const std::string_view odd = any_of(kOdd, random);
  const std::size_t at = below(text.size() + 1, random);
  std::string inserted;
  for (std::size_t i = 0; i < times; ++i) inserted += odd;
  text.insert(at, inserted);
}

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Stores the CRC-32 of these bytes at `to`.
void store_crc(std::string& bytes, std::size_t begin, std::size_t size, std::size_t to) {
  const auto crc = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()) + begin, size));
  std::memcpy(bytes.data() + to, &crc, sizeof crc);
}

/// The checksums of the members that are stored, in the directory at the end of the archive.
void reseal_zip(std::string& bytes) {
  constexpr std::size_t kEnd = 22, kEntry = 46, kHeader = 30;
  const std::size_t end = bytes.rfind("PK\x05\x06");
  if (end == std::string::npos || bytes.size() - end < kEnd) return;
  std::size_t at = number_at<std::uint32_t>(bytes, end + 16);
  while (at < end && end - at >= kEntry) {
    const std::size_t header = number_at<std::uint32_t>(bytes, at + 42),
                      size = number_at<std::uint32_t>(bytes, at + 20);
    if (header <= end - kHeader) {
      const std::size_t begin = header + kHeader + number_at<std::uint16_t>(bytes, header + 26) +
                                number_at<std::uint16_t>(bytes, header + 28);
      if (begin <= end && size <= end - begin) store_crc(bytes, begin, size, at + 16);
    }
    at += kEntry + number_at<std::uint16_t>(bytes, at + 28) + number_at<std::uint16_t>(bytes, at + 30) +
          number_at<std::uint16_t>(bytes, at + 32);
  }
}

}  // namespace

std::string flip_or_truncate(std::string bytes, Random& random) {
  if (below(5, random) == 0)
    bytes.resize(below(bytes.size(), random));
  else
    flip_bit(bytes, random);
  return bytes;
}

std::string mutate_bytes(std::string bytes, Random& random) {
  for (std::size_t i = 0, n = 1 + below(4, random); i < n; ++i) damage_bytes(bytes, random);
  return bytes;
}

std::string mutate_text(std::string text, Random& random) {
  for (std::size_t i = 0, n = 1 + below(4, random); i < n; ++i) {
    if (text.empty()) return text;
    const std::size_t kind = below(10, random);
    if (kind < 4)
      set_text_number(text, random);
    else if (kind < 6)
      change_lines(text, random);
    else if (kind < 9)
      insert_odd(text, random);
    else
      damage_bytes(text, random);
  }
  return text;
}

void write_resealed(const std::filesystem::path& path, std::string bytes) {
  if (bytes.starts_with("PK")) reseal_zip(bytes);
  if (bytes.starts_with("LSEMUL") && bytes.size() > 4) store_crc(bytes, 0, bytes.size() - 4, bytes.size() - 4);
  const std::size_t mark = bytes.rfind("\nlockstep end mark");
  test::write_text(path, std::string_view(bytes).substr(0, mark));
  if (mark != std::string::npos) append_end_mark(path);
}

}  // namespace lockstep::fuzz

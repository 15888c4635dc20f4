#include "tests/ps/tensorboard/event_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace muster::testing {
namespace {

// Computed bit by bit, to be independent of the tested table.
uint32_t MaskedCrc(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <typename T>
T Take(const std::string& file, size_t& at) {
  T value{};
  if (at + sizeof value > file.size()) {
    ADD_FAILURE() << "a number is cut off at " << at << " of " << file.size();
  } else {
    std::memcpy(&value, file.data() + at, sizeof value);
  }
  at += sizeof value;
  return value;
}

std::string EventFilePath(const std::string& dir) {
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
    EXPECT_EQ(path, "") << "two event files";
    path = entry.path();
  }
  return path;
}

}  // namespace

std::vector<tensorboard::Event> ReadEvents(const std::string& dir) {
  const std::string path = EventFilePath(dir);
  EXPECT_NE(path, "") << "no event file in " << dir;
  return ReadEventFile(path);
}

std::vector<tensorboard::Event> ReadEventFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; at < file.size();) {
    const std::string length_bytes = file.substr(at, sizeof(uint64_t));
    const auto length = Take<uint64_t>(file, at);
    EXPECT_EQ(Take<uint32_t>(file, at), MaskedCrc(length_bytes));
    if (at + length > file.size()) {
      ADD_FAILURE() << "an event of " << length << " bytes is cut off";
      break;
    }
    const std::string bytes = file.substr(at, length);
    at += length;
    EXPECT_EQ(Take<uint32_t>(file, at), MaskedCrc(bytes));
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes));
  }
  return events;
}

std::vector<TaggedValue> ValuesOf(const std::vector<tensorboard::Event>& events,
                                  const std::string& tag) {
  std::vector<TaggedValue> values;
  for (const tensorboard::Event& event : events) {
    for (const tensorboard::Summary::Value& value : event.summary().value()) {
      if (value.tag() == tag) values.push_back({event.step(), value});
    }
  }
  return values;
}

}  // namespace muster::testing

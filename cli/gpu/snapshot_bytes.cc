#include "cli/gpu/snapshot_bytes.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace muster {
namespace {

// The fields of each type, in one order for both directions.
template <typename Coder, typename Value>
void CodeFields(Coder& code, Value& value) {
  using Type = std::remove_const_t<Value>;
  const auto all = [&code](auto&... fields) { (code(fields), ...); };
  if constexpr (std::same_as<Type, GpuProcess>) {
    all(value.pid, value.bytes, value.computes);
  } else if constexpr (std::same_as<Type, Gpu>) {
    all(value.index, value.uuid, value.name, value.pci, value.trouble, value.total_bytes,
        value.free_bytes, value.used_bytes, value.sensors.utilization, value.sensors.temperature,
        value.sensors.power_w, value.limits.slowdown_temperature, value.limits.power_w, value.ecc,
        value.ecc_errors, value.exclusive, value.processes, value.cores, value.memory_nodes);
  } else {
    all(value.driver, value.none, value.failed, value.gpus, value.links);
  }
}

template <typename Type>
concept Plain = std::is_arithmetic_v<Type> || std::is_enum_v<Type>;

struct SnapshotWriter {
  std::string bytes;

  template <typename Type>
  void operator()(const Type& value) {
    if constexpr (Plain<Type>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      CodeFields(*this, value);
    }
  }
  template <typename Type>
  void operator()(const std::optional<Type>& value) {
    (*this)(value.has_value());
    if (value) (*this)(*value);
  }
  template <typename Type>
  void operator()(const std::vector<Type>& values) {
    (*this)(values.size());
    for (const Type& value : values) (*this)(value);
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    bytes += text;
  }
};

struct SnapshotReader {
  const std::string& bytes;
  size_t at = 0;

  size_t left() const { return bytes.size() - at; }

  template <typename Type>
  void operator()(Type& value) {
    if constexpr (Plain<Type>) {
      if (left() < sizeof value) return;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      at += sizeof value;
    } else {
      CodeFields(*this, value);
    }
  }
  template <typename Type>
  void operator()(std::optional<Type>& value) {
    bool is_set = false;
    (*this)(is_set);
    if (is_set) (*this)(value.emplace());
  }
  // Every element has at least one byte.
  template <typename Type>
  void operator()(std::vector<Type>& values) {
    size_t size = 0;
    (*this)(size);
    values.resize(std::min(size, left()));
    for (Type& value : values) (*this)(value);
  }
  void operator()(std::string& text) {
    size_t size = 0;
    (*this)(size);
    text = bytes.substr(at, size);
    at += text.size();
  }
};

}  // namespace

std::string BytesOf(const GpuSnapshot& snapshot) {
  SnapshotWriter writer;
  writer(snapshot);
  return std::move(writer.bytes);
}

GpuSnapshot SnapshotOf(const std::string& bytes) {
  GpuSnapshot snapshot;
  SnapshotReader{.bytes = bytes}(snapshot);
  return snapshot;
}

}  // namespace muster

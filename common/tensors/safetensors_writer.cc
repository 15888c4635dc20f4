#include "common/tensors/safetensors_writer.h"

#include <utility>

#include "common/base/error.h"

namespace muster {

namespace {

// The hash is known at the end: until then there are zeros in its place.
SafetensorsHeader WithRoomForHash(const SafetensorsHeader& header) {
  auto metadata = header.metadata;
  metadata[kContentsHash] = std::string(16, '0');
  return LayOutSafetensors(header.tensors, std::move(metadata));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsHeader& header)
    : header_(WithRoomForHash(header)), file_(path, header_.file_bytes()) {
  const std::string bytes = HeaderBytes(header_);
  file_.Write(std::as_bytes(std::span(bytes)));
}

void SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  MUSTER_CHECK(next_ < header_.tensors.size() && bytes.size() == header_.tensors[next_].bytes());
  file_.Write(bytes);
  hashes_[header_.tensors[next_].name] = HashTensor(bytes);
  ++next_;
}

void SafetensorsWriter::Commit() {
  MUSTER_CHECK(next_ == header_.tensors.size());
  SafetensorsHeader whole = header_;
  whole.metadata[kContentsHash] = ContentsHash(whole, hashes_);
  const std::string bytes = HeaderBytes(whole);
  file_.Overwrite(0, std::as_bytes(std::span(bytes)));
  file_.Commit();
}

}  // namespace muster

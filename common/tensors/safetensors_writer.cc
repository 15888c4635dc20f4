#include "common/tensors/safetensors_writer.h"

#include <utility>

#include "common/base/error.h"

namespace muster {

namespace {

// The hash is not known until the end, so zeros reserve space for it.
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
  PassWritten();
}

// Advances past complete tensors. Tensors without elements are complete at once.
void SafetensorsWriter::PassWritten() {
  while (next_ < header_.tensors.size() && next_written_ == header_.tensors[next_].bytes()) {
    hashes_[header_.tensors[next_].name] = next_hash_.value();
    next_hash_ = RunningHash();
    next_written_ = 0;
    ++next_;
  }
}

void SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  MUSTER_CHECK(next_ < header_.tensors.size() &&
               bytes.size() <= header_.tensors[next_].bytes() - next_written_);
  file_.Write(bytes);
  next_hash_.Add(bytes);
  next_written_ += bytes.size();
  PassWritten();
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

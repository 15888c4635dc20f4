#include "common/tensors/safetensors_writer.h"

#include <utility>

#include "common/base/error.h"

namespace muster {

SafetensorsWriter::SafetensorsWriter(const std::string& path, SafetensorsHeader header)
    : header_(std::move(header)), file_(path, header_.file_bytes()) {
  const std::string bytes = HeaderBytes(header_);
  file_.Write(std::as_bytes(std::span(bytes)));
}

void SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  MUSTER_CHECK(next_ < header_.tensors.size() && bytes.size() == header_.tensors[next_].bytes());
  file_.Write(bytes);
  ++next_;
}

void SafetensorsWriter::Commit() {
  MUSTER_CHECK(next_ == header_.tensors.size());
  file_.Commit();
}

}  // namespace muster

// What a data set's samples are, by its settings alone.
#include "common/base/error.h"
#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {

bool NeedsFiles(const config::Data& data) { return data.format() != config::Data::SYNTHETIC; }

Shape StoredShape(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
      return {32, 32, 3};
    case config::Data::SYNTHETIC:
      return {data.synthetic().height(), data.synthetic().width(), data.synthetic().channels()};
    case config::Data::MNIST:
      return {data.mnist().image_height(), data.mnist().image_width(), 1};
  }
  MUSTER_CHECK(false);
  return {};
}

Shape InputShape(const config::Data& data) {
  Shape shape = StoredShape(data);
  if (data.preprocess().has_crop_height()) {
    shape.height = data.preprocess().crop_height();
    shape.width = data.preprocess().crop_width();
  }
  return shape;
}

int64_t DataClasses(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
    case config::Data::MNIST:
      return 10;
    case config::Data::SYNTHETIC:
      return data.synthetic().classes();
  }
  MUSTER_CHECK(false);
  return 0;
}

}  // namespace muster

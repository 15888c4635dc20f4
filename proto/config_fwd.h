// The messages of proto/config.proto by name, for headers that only pass them on: what protobuf
// generates takes a second to compile.
#pragma once

namespace muster::config {

class BatchNorm;
class Cluster;
class Config;
class Conv2d;
class Data;
class Dense;
class Layer;
class LearningRate;
class Lrn;
class Model;
class Optimizer;
class Pool;
class Preprocess;
class Run;
class SyntheticData;

}  // namespace muster::config

// Forward declarations of the messages in proto/config.proto. Including the generated header adds a
// second of compile time.
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

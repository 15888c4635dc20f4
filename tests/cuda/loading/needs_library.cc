// A plugin that needs a library, as the real one needs cuBLAS.
extern "C" int muster_stand_in_create();
extern "C" int muster_stand_in_matmul();
extern "C" int muster_cuda_plugin_version() {
  return muster_stand_in_create() + muster_stand_in_matmul();
}

/* cudnn_parts.h -- what cudnn.c and cudnn_ops.c share. */
#ifndef FAKE_GPU_CUDNN_PARTS_H
#define FAKE_GPU_CUDNN_PARTS_H

#include <cudnn.h>
#include <stdbool.h>

#include "tests/fake/gpu/number.h"

enum { BAG_ATTRIBUTES = 24, GRAPH_OPS = 24, GRAPH_TENSORS = 48, TENSOR_DIMS = 8 };

typedef struct bag_attribute {
    int name, type;
    int64_t count;
    void *data;
} bag_attribute;

/* A descriptor: what was set, and how many hold it.  Those it names it holds itself. */
typedef struct bag {
    cudnnBackendDescriptorType_t type;
    uint32_t refs;
    bool final;
    int64_t engine; /* of an engine and of its configuration */
    struct bag *graph;
    bag_attribute attributes[BAG_ATTRIBUTES];
    int count;
} bag;

const bag_attribute *bag_find(const bag *b, int name);
const bag *bag_link(const bag *b, int name, int64_t index); /* a descriptor; NULL */
int64_t bag_integer(const bag *b, int name, int64_t index, int64_t otherwise);
double bag_real(const bag *b, int name, double otherwise);

/* Memory of a tensor during an execution: found by its unique id. */
typedef struct tensor {
    int64_t id;
    number_type type;
    int64_t rank, dim[TENSOR_DIMS], stride[TENSOR_DIMS];
    void *at;
    bool owned;      /* virtual: lives as long as the execution */
    double by_value; /* a copy of what the variant pack points to */
} tensor;

typedef struct execution {
    bag *graph;
    int64_t engine;
    tensor tensors[GRAPH_TENSORS];
    int tensor_count;
    void *workspace;
} execution;

enum { CUDNN_WORKSPACE = 1000 };

/* Whether all ops of the graph are known here. */
bool cudnn_ops_known(const bag *graph);
void cudnn_ops_run(execution *e);

#endif

/* cudnn_parts.h: declarations shared by cudnn.c and cudnn_ops.c. */
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

/* A descriptor: attributes and a reference count. A bag holds references to descriptors in the
 * attributes. */
typedef struct bag {
    cudnnBackendDescriptorType_t type;
    uint32_t refs;
    bool final;
    int64_t engine;  /* engines and engine configurations */
    int64_t tile;    /* engine configurations */
    int64_t knob[2]; /* knob choices: type, value */
    struct bag *graph;
    bag_attribute attributes[BAG_ATTRIBUTES];
    int count;
} bag;

const bag_attribute *bag_find(const bag *b, int name);
const bag *bag_link(const bag *b, int name, int64_t index); /* descriptor, or NULL */
int64_t bag_integer(const bag *b, int name, int64_t index, int64_t otherwise);
double bag_real(const bag *b, int name, double otherwise);

/* A tensor during one execution, found by unique id. */
typedef struct tensor {
    int64_t id;
    number_type type;
    int64_t rank, dim[TENSOR_DIMS], stride[TENSOR_DIMS];
    void *at;
    bool owned;      /* virtual tensor: freed with the execution */
    double by_value; /* copy of the value from the variant pack */
} tensor;

typedef struct execution {
    bag *graph;
    int64_t engine, tile;
    tensor tensors[GRAPH_TENSORS];
    int tensor_count;
    void *workspace;
} execution;

enum { CUDNN_WORKSPACE = 1000 };

/* Return whether all operations of the graph are supported. */
bool cudnn_ops_known(const bag *graph);
void cudnn_ops_run(execution *e);

#endif

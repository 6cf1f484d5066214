/* onnx_bytes.h: build ONNX files byte by byte, so that tests of the reader do not depend on the
 * writer. */
#ifndef GP_ONNX_BYTES_H
#define GP_ONNX_BYTES_H

#include <inttypes.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/model/onnx/onnx.h"
#include "tests/gp_test.h"

/* Result of loading a file. */
typedef struct loaded {
    gp_netspec *spec;
    float *blob;
    char **class_names;
    uint32_t class_count;
} loaded;

static inline void loaded_free(loaded *l)
{
    for (uint32_t i = 0; i < l->class_count; i++)
        gp_free(l->class_names[i]);
    gp_free(l->class_names);
    gp_netspec_free(l->spec);
    gp_free(l->blob);
    *l = (loaded){ 0 };
}

static inline gp_status load(loaded *l, const gp_buffer *file, gp_error *err)
{
    return gp_onnx_read(&l->spec, &l->blob, &l->class_names, &l->class_count, file->data, file->bytes, NULL,
                        err);
}

static inline char *json_of(const gp_netspec *spec)
{
    gp_buffer text;
    size_t bytes;

    gp_buffer_init(&text, GP_NETSPEC_BYTES_MAX);
    if (gp_netspec_to_json(spec, &text, false, NULL) != GP_OK)
        return NULL;
    return (char *)gp_buffer_take(&text, &bytes);
}

static inline void check_same_network(const gp_netspec *wanted, const gp_netspec *got)
{
    char *a = json_of(wanted), *b = json_of(got);

    CHECK(a != NULL);
    CHECK_TEXT(a, b);
    gp_free(a);
    gp_free(b);
}

/* ---- protobuf ---- */

static inline void put_varint(gp_buffer *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        gp_buffer_append(to, &(uint8_t){ (uint8_t)(value | 0x80) }, 1, NULL);
    gp_buffer_append(to, &(uint8_t){ (uint8_t)value }, 1, NULL);
}

static inline void put_int(gp_buffer *to, uint32_t number, int64_t value)
{
    put_varint(to, number << 3);
    put_varint(to, (uint64_t)value);
}

static inline void put_bytes(gp_buffer *to, uint32_t number, const void *data, size_t bytes)
{
    put_varint(to, number << 3 | 2);
    put_varint(to, bytes);
    gp_buffer_append(to, data, bytes, NULL);
}

static inline void put_text(gp_buffer *to, uint32_t number, const char *text)
{
    put_bytes(to, number, text, strlen(text));
}

/* Append the message as a field and clear it. */
static inline void put_message(gp_buffer *to, uint32_t number, gp_buffer *message)
{
    put_bytes(to, number, message->data, message->bytes);
    gp_buffer_deinit(message);
}

enum { MESSAGE_MAX = 1 << 22 };

static inline gp_buffer message(void)
{
    gp_buffer buffer;

    gp_buffer_init(&buffer, MESSAGE_MAX);
    return buffer;
}

/* Append a node. Inputs and outputs are separated by blanks; attributes: "name=1 name=1,2
 * name=@TEXT". */
static inline void put_node(gp_buffer *graph, const char *type, const char *name, const char *inputs,
                            const char *output, const char *attributes)
{
    gp_buffer node = message();
    char words[256], *rest, *word;

    snprintf(words, sizeof(words), "%s", inputs);
    for (word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        put_text(&node, 1, word);
    put_text(&node, 2, output);
    put_text(&node, 3, name);
    put_text(&node, 4, type);
    snprintf(words, sizeof(words), "%s", attributes);
    for (word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        gp_buffer attribute = message();
        char *value = strchr(word, '=');

        *value++ = '\0';
        put_text(&attribute, 1, word);
        if (*value == '@')
            put_text(&attribute, 4, value + 1);
        else if (strchr(value, '.') != NULL) {
            float number = strtof(value, NULL);

            put_varint(&attribute, 2 << 3 | 5);
            gp_buffer_append(&attribute, &number, 4, NULL);
        } else if (strchr(value, ',') == NULL)
            put_int(&attribute, 3, atoll(value));
        else
            for (char *end = value - 1; end != NULL; end = strchr(end + 1, ','))
                put_int(&attribute, 8, atoll(end + 1));
        put_message(&node, 5, &attribute);
    }
    put_message(graph, 1, &node);
}

/* Append a float tensor with the values first, first + step, first + 2 * step, ... */
static inline void put_tensor(gp_buffer *graph, const char *name, const char *dims, float first, float step)
{
    gp_buffer tensor = message(), data = message();
    int64_t count = 1;
    char words[64], *rest;

    snprintf(words, sizeof(words), "%s", dims);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        put_int(&tensor, 1, atoll(word));
        count *= atoll(word);
    }
    for (int64_t i = 0; i < count; i++) {
        float number = first + step * (float)i;

        gp_buffer_append(&data, &number, 4, NULL);
    }
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, name);
    put_message(&tensor, 9, &data);
    put_message(graph, 5, &tensor);
}

static inline void put_port(gp_buffer *graph, uint32_t number, const char *name, const char *dims)
{
    gp_buffer port = message(), type = message(), tensor = message(), shape = message();
    char words[64], *rest;

    snprintf(words, sizeof(words), "%s", dims);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        gp_buffer dim = message();

        if (*word >= '0' && *word <= '9')
            put_int(&dim, 1, atoll(word));
        else
            put_text(&dim, 2, word);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&port, 1, name);
    put_message(&port, 2, &type);
    put_message(graph, number, &port);
}

/* Wrap the graph in a model and release the graph. */
static inline gp_buffer model_of(gp_buffer *graph, int64_t opset)
{
    gp_buffer model = message(), import = message();

    put_text(&import, 1, "");
    put_int(&import, 2, opset);
    put_int(&model, 1, 8);
    put_message(&model, 8, &import);
    put_message(&model, 7, graph);
    return model;
}

/* Create a graph with input [N, 2, 4, 4] and output y; the test adds the nodes. */
static inline gp_buffer graph_of(void)
{
    gp_buffer graph = message();

    put_text(&graph, 2, "net from afar");
    put_port(&graph, 11, "x", "N 2 4 4");
    put_port(&graph, 12, "y", "N 3");
    put_tensor(&graph, "w", "4 2 3 3", 0, 1);
    put_tensor(&graph, "b", "4", 100, 1);
    put_tensor(&graph, "m", "4 3", 0, 1);
    put_tensor(&graph, "mb", "3", 7, 1);
    return graph;
}

static inline gp_buffer foreign_model(void)
{
    gp_buffer graph = graph_of();

    put_node(&graph, "Conv", "/conv 1/Conv", "x w b", "c", "");
    put_node(&graph, "MaxPool", "", "c", "p", "kernel_shape=2,2 strides=2,2");
    put_node(&graph, "Flatten", "flat", "p", "f", "");
    put_node(&graph, "MatMul", "head", "f m", "mm", "");
    put_node(&graph, "Add", "head", "mm mb", "y", "");
    return model_of(&graph, 13);
}

#endif

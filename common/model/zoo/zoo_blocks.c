/* Building blocks for zoo networks; zoo.h describes them. */
#include <stdarg.h>
#include <stdio.h>

#include "common/model/zoo/zoo.h"

void gp_zoo_add(gp_zoo_builder *b, const char *from, const char *name, const char *kind, const char *settings,
                ...)
{
    char text[160];
    va_list arguments;

    if (b->status != GP_OK)
        return;
    va_start(arguments, settings);
    vsnprintf(text, sizeof(text), settings, arguments);
    va_end(arguments);
    b->status = gp_netspec_add(b->spec, name, kind, text[0] == '\0' ? NULL : text, b->err);
    if (b->status == GP_OK && from != NULL)
        b->status = gp_netspec_connect(b->spec, &from, 1, b->err);
}

void gp_zoo_meet(gp_zoo_builder *b, const char *name, const char *kind, const char *const *inputs,
                 size_t count)
{
    gp_zoo_add(b, NULL, name, kind, "%s", "");
    if (b->status == GP_OK)
        b->status = gp_netspec_connect(b->spec, inputs, count, b->err);
}

const char *gp_zoo_named(char *to, const char *stem, const char *part)
{
    snprintf(to, GP_NAME_MAX, "%.*s_%s", GP_ZOO_STEM_MAX, stem, part);
    return to;
}

const char *gp_zoo_here(const gp_zoo_builder *b)
{
    return b->spec->layer_count == 0 ? "input" : b->spec->layers[b->spec->layer_count - 1].name;
}

void gp_zoo_conv_norm(gp_zoo_builder *b, const char *from, const char *stem, gp_zoo_conv conv)
{
    const int height = conv.height, width = conv.width != 0 ? conv.width : height;
    const int dilation = conv.dilation == 0 ? 1 : conv.dilation;
    const int pad[2] = { conv.valid ? 0 : height / 2 * dilation, conv.valid ? 0 : width / 2 * dilation };
    char name[GP_NAME_MAX];

    gp_zoo_add(b, from, gp_zoo_named(name, stem, "conv"), "conv2d",
               "channels=%d;kernel=%d,%d;stride=%d;dilation=%d,%d;padding=%d,%d,%d,%d;groups=%d;bias=false",
               conv.channels, height, width, conv.stride == 0 ? 1 : conv.stride, height == 1 ? 1 : dilation,
               width == 1 ? 1 : dilation, pad[0], pad[1], pad[0], pad[1], conv.groups == 0 ? 1 : conv.groups);
    if (conv.epsilon == 0.0)
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "bn"), "batchnorm", "%s", "");
    else
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "bn"), "batchnorm", "epsilon=%g", conv.epsilon);
    if (conv.end == GP_ZOO_RELU)
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "relu"), "relu", "%s", "");
    if (conv.end == GP_ZOO_CLIP)
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "clip"), "clip", "%s", "");
}

int gp_zoo_stride(gp_zoo_pace *pace, int stride)
{
    if (pace->stride * stride > pace->limit) {
        pace->dilation *= stride;
        return 1;
    }
    pace->stride *= stride;
    return stride;
}

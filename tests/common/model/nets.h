/* nets.h: build networks for the tests in this folder from one line of text. */
#ifndef TESTS_MODEL_NETS_H
#define TESTS_MODEL_NETS_H

#include <string.h>

#include "common/model/graph/graph.h"

/* Parse "name kind settings < input,input | name kind ..."; settings and inputs are optional:
 *   "c conv2d channels=2;kernel=3 | r relu | a add < c,r | f fc outputs=3 | l crossentropy" */
static inline gp_status net_parse(gp_netspec **out, const gp_shape *input, const char *text, gp_error *err)
{
    char copy[1024], *rest = copy;
    gp_netspec *spec = NULL;
    gp_status status = gp_netspec_new(&spec, "net", input, err);

    snprintf(copy, sizeof(copy), "%s", text);
    while (status == GP_OK && rest != NULL) {
        char *layer = strsep(&rest, "|"), *inputs = strchr(layer, '<'), *at, *word[3] = { NULL };
        const char *names[GP_LAYER_INPUTS_MAX];
        size_t count = 0;

        if (inputs != NULL)
            *inputs++ = '\0';
        for (int i = 0; i < 3; i++)
            word[i] = strtok_r(i == 0 ? layer : NULL, " ", &at);
        status = gp_netspec_add(spec, word[0], word[1], word[2], err);
        if (status != GP_OK || inputs == NULL)
            continue;
        for (char *name = strtok_r(inputs, " ,", &at); name != NULL; name = strtok_r(NULL, " ,", &at))
            names[count++] = name;
        status = gp_netspec_connect(spec, names, count, err);
    }
    if (status != GP_OK)
        gp_netspec_free(spec); /* incomplete */
    else
        *out = spec;
    return status;
}

static inline gp_status net_graph(gp_graph **out, const gp_shape *input, const char *text, gp_error *err)
{
    gp_netspec *spec;
    gp_status status = net_parse(&spec, input, text, err);

    if (status != GP_OK)
        return status;
    status = gp_graph_new(out, spec, err);
    gp_netspec_free(spec); /* the graph has a copy */
    return status;
}

#endif

/* node_text.h - what the commands that look at a node share. */
#ifndef CLI_NODE_TEXT_H
#define CLI_NODE_TEXT_H

#include <stdint.h>

/* Of every command that looks at a node. */
#define NODE_OPTION                                                                                          \
    {                                                                                                        \
        "node", OPTION_TEXT, "PID|PATH", "The node: the pid of its daemon, or its socket"                    \
    }

/* "1.5 GB", "3 m 20 s"; into `text`, which is returned. */
char *node_text_size(char text[32], uint64_t bytes);
char *node_text_time(char text[32], int64_t ns);

#endif

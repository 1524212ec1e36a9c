/* web/xml.h - the texts of elements in the answers of S3.
 *
 * Not a parser of XML: it finds elements by name, whatever stands around them, and
 * looks for no attributes, namespaces or declarations. Pure; any bytes are allowed. */
#ifndef WEB_XML_H
#define WEB_XML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xml_span {
    const char *at;
    size_t n;
} xml_span;

/* Finds the next element called `name` in *rest: *inner is what lies in it, *rest what
 * follows. False: there is none that ends; *rest is then unchanged. */
bool xml_next(xml_span *rest, const char *name, xml_span *inner);

/* The text of the first element called `name` in `all`, with its entities resolved.
 * NULL: there is none. Owned by the caller. */
char *xml_text(xml_span all, const char *name);

/* Text whose bytes are encoded by "%2F" ("+" is a space where `plus` is set), in place.
 * False: it holds a byte 0 or an encoding that is none. */
bool xml_decode_url(char *text, bool plus);

#endif

//! Parser: builds the tree by recursive descent, one function per grammar rule, without backtracking.
//!
//! Invariant: neither the nesting of the calls nor the depth of the tree exceeds `DEPTH_MAX`.

use std::collections::BTreeSet;

use memchr::memmem::Finder;

use super::error::{DEPTH_MAX, OPERATORS, SQL_NAMES_MAX, SqlError};
use super::expression::{Comparison, Constant, Node, Part};
use super::lexer::{Keyword, Lexer, Token};

/// The result of parsing.
pub(super) struct Parsed<'t> {
    pub(super) root: Node,
    pub(super) names: Vec<&'t str>,
    pub(super) nodes: usize,
}

/// A node, and its depth.
struct Term {
    node: Node,
    depth: usize,
}

pub(super) fn parse(text: &str, is_strict: bool) -> Result<Parsed<'_>, SqlError> {
    let mut lexer = Lexer::new(text);
    let (token, at) = lexer.next()?;
    let mut parser = Parser { lexer, token, at, names: Vec::new(), nodes: 0, nesting: 0 };
    let term = parser.or()?;
    if is_strict && parser.token != Token::End {
        let reason = "the expression is complete before this, and what follows would be ignored";
        return Err(parser.error(format!("{reason}; {OPERATORS}")));
    }
    let root = parser.boolean(term)?.node;
    Ok(Parsed { root, names: parser.names, nodes: parser.nodes })
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token and its position.
    token: Token<'t>,
    at: usize,
    names: Vec<&'t str>,
    nodes: usize,
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn or(&mut self) -> Result<Term, SqlError> {
        let first = self.and()?;
        self.chain(first, Keyword::Or, Self::and, Node::Or)
    }

    fn and(&mut self) -> Result<Term, SqlError> {
        let first = self.equality()?;
        self.chain(first, Keyword::And, Self::equality, Node::And)
    }

    /// Parses `first`, or several connected by `between` into one node.
    fn chain(
        &mut self,
        first: Term,
        between: Keyword,
        next: fn(&mut Self) -> Result<Term, SqlError>,
        node: fn(Vec<Node>) -> Node,
    ) -> Result<Term, SqlError> {
        if self.token != Token::Keyword(between) {
            return Ok(first);
        }
        let first = self.boolean(first)?;
        let (mut nodes, mut depth) = (vec![first.node], first.depth);
        while self.take(Token::Keyword(between))? {
            let term = next(self)?;
            let term = self.boolean(term)?;
            depth = depth.max(term.depth);
            nodes.push(term.node);
        }
        self.above(node(nodes), depth)
    }

    fn equality(&mut self) -> Result<Term, SqlError> {
        let mut left = self.compared()?;
        loop {
            left = match self.token {
                Token::Equal | Token::NotEqual => {
                    let is_negated = self.token == Token::NotEqual;
                    self.advance()?;
                    let right = self.compared()?;
                    self.check_equal(&left.node, &right.node)?;
                    let depth = left.depth.max(right.depth);
                    let equal = self.above(Node::Equal(Box::new([left.node, right.node])), depth)?;
                    self.negated(equal, is_negated)?
                }
                Token::Keyword(Keyword::Is) => {
                    self.advance()?;
                    let is_negated = self.take(Token::Keyword(Keyword::Not))?;
                    self.expect(Token::Keyword(Keyword::Null), "NULL")?;
                    let is_null = self.above(Node::IsNull(Box::new(left.node)), left.depth)?;
                    self.negated(is_null, is_negated)?
                }
                _ => return Ok(left),
            };
        }
    }

    fn compared(&mut self) -> Result<Term, SqlError> {
        let mut left = self.unary()?;
        loop {
            let comparison = match self.token {
                Token::Less => Comparison::Less,
                Token::LessOrEqual => Comparison::LessOrEqual,
                Token::Greater => Comparison::Greater,
                Token::GreaterOrEqual => Comparison::GreaterOrEqual,
                Token::Keyword(
                    Keyword::Not
                    | Keyword::Contains
                    | Keyword::StartsWith
                    | Keyword::EndsWith
                    | Keyword::Between
                    | Keyword::In,
                ) => {
                    left = self.predicate(left)?;
                    continue;
                }
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.unary()?;
            left = self.comparison(comparison, left, right)?;
        }
    }

    /// Parses an operator word after `left`, or NOT and a word.
    fn predicate(&mut self, left: Term) -> Result<Term, SqlError> {
        let is_negated = self.take(Token::Keyword(Keyword::Not))?;
        let Token::Keyword(keyword) = self.token else { return Err(self.no_predicate()) };
        match keyword {
            Keyword::Contains | Keyword::StartsWith | Keyword::EndsWith => {
                self.advance()?;
                let text = self.text()?;
                let part = match keyword {
                    Keyword::Contains => Part::Inside(Box::new(Finder::new(text.as_bytes()).into_owned())),
                    Keyword::StartsWith => Part::Begin(text),
                    _ => Part::End(text),
                };
                self.above(Node::Has { text: Box::new(left.node), part, is_negated }, left.depth)
            }
            Keyword::Between => {
                self.advance()?;
                self.between(left, is_negated)
            }
            Keyword::In => {
                self.advance()?;
                self.is_in(left, is_negated)
            }
            _ => Err(self.no_predicate()),
        }
    }

    fn no_predicate(&self) -> SqlError {
        self.error(format!("expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT; {OPERATORS}"))
    }

    fn between(&mut self, left: Term, is_negated: bool) -> Result<Term, SqlError> {
        let at = self.at;
        let low = self.unary()?;
        self.expect(Token::Keyword(Keyword::And), "AND")?;
        let high = self.unary()?;
        if let (Node::Constant(low), Node::Constant(high), false) = (&low.node, &high.node, is_negated)
            && !low.is_up_to(high)
        {
            let reason = "the bounds of BETWEEN must be numbers, the upper one not below the lower one";
            return Err(SqlError::new(at, reason));
        }
        // The operand is evaluated for each bound, so the tree holds it twice.
        let (again, again_depth) = (self.copy(&left.node)?, left.depth);
        let (below, above) = if is_negated {
            (Comparison::Less, Comparison::Greater)
        } else {
            (Comparison::GreaterOrEqual, Comparison::LessOrEqual)
        };
        let first = self.comparison(below, left, low)?;
        let second = self.comparison(above, Term { node: again, depth: again_depth }, high)?;
        let depth = first.depth.max(second.depth);
        let both = vec![first.node, second.node];
        self.above(if is_negated { Node::Or(both) } else { Node::And(both) }, depth)
    }

    fn is_in(&mut self, left: Term, is_negated: bool) -> Result<Term, SqlError> {
        let Node::Property(property) = left.node else {
            return Err(self.error("only a property can be IN a list"));
        };
        self.expect(Token::Open, "(")?;
        // Sorted and without duplicates.
        let mut texts = BTreeSet::from([self.text()?]);
        while self.take(Token::Comma)? {
            texts.insert(self.text()?);
        }
        self.expect(Token::Close, ")")?;
        self.nodes += texts.len();
        let texts = texts.into_iter().collect();
        self.above(Node::In { property, texts, is_negated }, 0)
    }

    fn unary(&mut self) -> Result<Term, SqlError> {
        self.nesting += 1;
        if self.nesting > DEPTH_MAX {
            return Err(self.too_deep());
        }
        let term = match self.token {
            Token::Plus => {
                self.advance()?;
                self.unary()
            }
            Token::Minus => {
                self.advance()?;
                let term = self.unary()?;
                self.above(Node::Negated(Box::new(term.node)), term.depth)
            }
            Token::Keyword(Keyword::Not) => {
                self.advance()?;
                let term = self.unary()?;
                let term = self.boolean(term)?;
                self.negated(term, true)
            }
            _ => self.primary(),
        };
        self.nesting -= 1;
        term
    }

    fn primary(&mut self) -> Result<Term, SqlError> {
        let constant = match self.token {
            Token::Text(raw) => Constant::Text(unquoted(raw)),
            Token::Integer(digits) => self.integer(digits)?,
            Token::Float(text) => self.float(text)?,
            Token::Keyword(Keyword::True) => Constant::Bool(true),
            Token::Keyword(Keyword::False) => Constant::Bool(false),
            Token::Keyword(Keyword::Null) => Constant::Null,
            Token::Name(name) => {
                let property = self.property(name)?;
                self.advance()?;
                return self.above(Node::Property(property), 0);
            }
            Token::Open => {
                self.advance()?;
                let term = self.or()?;
                self.expect(Token::Close, ")")?;
                return Ok(term);
            }
            _ => {
                let reason = "expected a property, a value or an expression in parentheses";
                return Err(self.error(format!("{reason}; {OPERATORS}")));
            }
        };
        self.advance()?;
        self.above(Node::Constant(constant), 0)
    }

    /// Returns the index of a property.
    fn property(&mut self, name: &'t str) -> Result<usize, SqlError> {
        if let Some(known) = self.names.iter().position(|known| *known == name) {
            return Ok(known);
        }
        if self.names.len() == SQL_NAMES_MAX {
            return Err(self.error(format!("an expression may name {SQL_NAMES_MAX} properties")));
        }
        self.names.push(name);
        Ok(self.names.len() - 1)
    }

    fn integer(&self, digits: &str) -> Result<Constant, SqlError> {
        let value = digits.parse::<i64>();
        let value = value.map_err(|_| self.error(format!("{digits} is beyond 64 bits")))?;
        Ok(i32::try_from(value).map_or(Constant::Long(value), Constant::Int))
    }

    fn float(&self, text: &str) -> Result<Constant, SqlError> {
        match text.parse::<f64>() {
            Ok(value) if value > 0.0 && value.is_finite() => Ok(Constant::Double(value)),
            _ => Err(self.error(format!("{text} is not between the smallest and the largest double"))),
        }
    }

    /// Parses the required text.
    fn text(&mut self) -> Result<Box<str>, SqlError> {
        let Token::Text(raw) = self.token else {
            return Err(self.error("expected a text in single quotes"));
        };
        self.advance()?;
        Ok(unquoted(raw))
    }

    fn comparison(&mut self, comparison: Comparison, left: Term, right: Term) -> Result<Term, SqlError> {
        for side in [&left.node, &right.node] {
            let is_comparable = match side {
                Node::Constant(constant) => constant.is_number(),
                other => !other.is_boolean(),
            };
            if !is_comparable {
                return Err(self.error("only properties and numbers can be compared by size"));
            }
        }
        let depth = left.depth.max(right.depth);
        self.above(Node::Compared(comparison, Box::new([left.node, right.node])), depth)
    }

    fn check_equal(&self, left: &Node, right: &Node) -> Result<(), SqlError> {
        let is_null = |node: &Node| matches!(node, Node::Constant(Constant::Null));
        if is_null(left) || is_null(right) {
            return Err(self.error("NULL equals nothing; write IS NULL or IS NOT NULL"));
        }
        if let (Node::Constant(Constant::Bool(_)), Node::Constant(right)) = (left, right)
            && !matches!(right, Constant::Bool(_))
        {
            return Err(self.error("a boolean can be compared with a boolean only"));
        }
        Ok(())
    }

    /// Converts a term to a boolean.
    fn boolean(&mut self, term: Term) -> Result<Term, SqlError> {
        match term.node {
            Node::Property(property) => Ok(Term { node: Node::Bare(property), ..term }),
            ref node if node.is_boolean() => Ok(term),
            _ => Err(self.error("this does not yield true or false")),
        }
    }

    fn negated(&mut self, term: Term, is_negated: bool) -> Result<Term, SqlError> {
        if is_negated { self.above(Node::Not(Box::new(term.node)), term.depth) } else { Ok(term) }
    }

    /// Wraps nodes in a node above them.
    fn above(&mut self, node: Node, depth: usize) -> Result<Term, SqlError> {
        self.nodes += 1;
        if depth >= DEPTH_MAX {
            return Err(self.too_deep());
        }
        Ok(Term { node, depth: depth + 1 })
    }

    /// Copies an operand of BETWEEN: a property or a number, with signs.
    fn copy(&mut self, node: &Node) -> Result<Node, SqlError> {
        self.nodes += 1;
        Ok(match node {
            Node::Property(property) => Node::Property(*property),
            Node::Constant(constant) => Node::Constant(constant.clone()),
            Node::Negated(node) => Node::Negated(Box::new(self.copy(node)?)),
            _ => return Err(self.error("only properties and numbers can be compared by size")),
        })
    }

    fn too_deep(&self) -> SqlError {
        self.error(format!("an expression may have {DEPTH_MAX} levels"))
    }

    fn take(&mut self, token: Token<'_>) -> Result<bool, SqlError> {
        let is_next = self.token == token;
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, token: Token<'_>, what: &str) -> Result<(), SqlError> {
        if self.take(token)? { Ok(()) } else { Err(self.error(format!("expected {what}"))) }
    }

    fn advance(&mut self) -> Result<(), SqlError> {
        (self.token, self.at) = self.lexer.next()?;
        Ok(())
    }

    fn error(&self, reason: impl Into<String>) -> SqlError {
        SqlError::new(self.at, reason)
    }
}

/// Undoes the doubled quotes of a text literal.
fn unquoted(raw: &str) -> Box<str> {
    raw.replace("''", "'").into()
}
